"""The project's own draft: three layers distilled from the bundled model, and how to get them.

    folder = assemble_draft()                 # ready for vllm serve --speculative-config
    open_pack().share                         # measured held-out greedy agreement, 0 to 1

``python -m turbo_lab.speculative --help`` builds one anew.
"""

from __future__ import annotations

from turbo_lab.speculative.draft_assemble import assemble_draft, draft_folder
from turbo_lab.speculative.draft_pack import PackedDraft, open_pack, shipped_folder
from turbo_lab.speculative.draft_recipe import DataRecipe, DraftRecipe, TrainRecipe

__all__ = [
    "DataRecipe",
    "DraftRecipe",
    "PackedDraft",
    "TrainRecipe",
    "assemble_draft",
    "draft_folder",
    "open_pack",
    "shipped_folder",
]
