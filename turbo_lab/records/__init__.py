"""What a run leaves behind: one JSON file with all samples, its conditions and a digest."""

from turbo_lab.records.digest import canonical_json, digest_of, seal, verify
from turbo_lab.records.schema import SCHEMA_VERSION, Record

__all__ = ["SCHEMA_VERSION", "Record", "canonical_json", "digest_of", "seal", "verify"]
