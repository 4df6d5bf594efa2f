"""The servers into which faults are put: one with few seats and a small pool, one with a bad draft.

Both start side by side, once; every fault of a running server uses them. The first client is sent
while they load, for that is the cold start.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import threading
from pathlib import Path
from typing import Self

from turbo_lab.core.closing import Closing
from turbo_lab.core.errors import EngineError, TurboLabError, UnmeasuredError
from turbo_lab.diagnose.injection.fault import Evidence
from turbo_lab.diagnose.injection.patient import PROMPT_TOKENS, Patient
from turbo_lab.diagnose.injection.untrained_draft import write_untrained_draft
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.metrics.timeline import Timeline

LONGEST_TOKENS, SEATS, BLOCK_TOKENS, BLOCKS = 256, 8, 32, 12
LONG_REPLY_TOKENS = 80  # three blocks with its prompt: eight such requests need twice the pool
DRAFTED_SEATS, DRAFT_TOKENS = 4, 5
FIRST_REQUESTS = 5
RETRIES = 70  # of the first client: 0.1 s doubled up to 5 s, about five minutes in all
READY_S = 300.0


def patient_args(base: VllmArgs, key: str) -> VllmArgs:
    """A healthy server that is easily overloaded: few seats, a small pool, a key, request lines."""
    return base.replace(
        max_model_len=LONGEST_TOKENS, max_num_seqs=SEATS, block_size=BLOCK_TOKENS,
        extra=(*base.extra, ("--num-gpu-blocks-override", str(BLOCKS)),
               ("--enable-log-requests", "")),
        env=(*base.env, ("VLLM_API_KEY", key)),
    )  # fmt: skip


def drafted_args(base: VllmArgs, draft: Path) -> VllmArgs:
    """The same model with speculation by a draft that was never trained."""
    config = {"method": "draft_model", "model": str(draft), "num_speculative_tokens": DRAFT_TOKENS}
    return base.replace(
        max_model_len=LONGEST_TOKENS, max_num_seqs=DRAFTED_SEATS,
        speculative_config=json.dumps(config, sort_keys=True),
    )  # fmt: skip


class Ward(Closing):
    """Use it as a context manager, or ``open`` and ``close``; its processes end with this one.

    Args:
        base: arguments of a plain server of the model; the patients are variants of it.
        folder: for logs and the draft; made if missing.
    """

    def __init__(self, base: VllmArgs, *, folder: Path) -> None:
        self.base, self.folder = base, folder
        self.key = f"lab-{secrets.token_hex(6)}"
        self.starts = 0
        self.first_evidence = Evidence()
        self.no_draft: str | None = None  # why there is no server with a draft
        self._patient: Patient | None = None
        self._drafted: Patient | None = None

    @property
    def patient(self) -> Patient:
        """The server with few seats and a small pool. Raises EngineError before ``open``."""
        if self._patient is None:
            raise EngineError("the ward is closed; call open() first")
        return self._patient

    @property
    def drafted(self) -> Patient:
        """The server with the bad draft. Raises UnmeasuredError where it could not be made."""
        if self._drafted is None:
            raise UnmeasuredError(self.no_draft or "the ward is closed; call open() first")
        return self._drafted

    @property
    def start_log(self) -> bytes:
        """What the patient wrote until it was ready: a healthy start."""
        return self.first_evidence.log

    def open(self) -> VllmServer:
        """Start both servers and send the first client meanwhile. Returns the patient's server.

        A server that is dead is started anew. Raises EngineError when the patient does not start.
        """
        if self._patient is not None and self._patient.server.alive():
            return self._patient.server  # type: ignore[return-value]
        self.close()
        self.starts += 1
        server = VllmServer(patient_args(self.base, self.key), folder=self._room("patient"))
        drafted = self._drafted_server()
        try:
            server.start()
            if drafted is not None:
                drafted.start()
            self._patient = Patient(
                server, key=self.key, seats=SEATS, longest_tokens=LONGEST_TOKENS
            )
            runs = self._first_client(server)
            if drafted is not None:
                drafted.wait_ready(READY_S)
                self._drafted = Patient(drafted, seats=DRAFTED_SEATS, longest_tokens=LONGEST_TOKENS)
        except BaseException:
            for one in (server, drafted):
                if one is not None:
                    one.stop()
            self._patient = None
            raise
        self.first_evidence = Evidence(server.log.read_bytes(), None, tuple(runs))
        self.patient.learn_limits(self.patient.page())
        if self._drafted is not None:
            self._drafted.limits = self.patient.limits
        return server

    def close(self) -> None:
        """Stop both servers and delete the draft (100 MB and more). Safe to call twice."""
        for patient in (self._patient, self._drafted):
            if patient is not None:
                with contextlib.suppress(EngineError):
                    patient.server.stop()  # type: ignore[attr-defined]
        self._patient = self._drafted = None
        shutil.rmtree(self._draft_folder, ignore_errors=True)

    @property
    def _draft_folder(self) -> Path:
        return self.folder / "untrained-draft"

    def long_replies_that_fit(self) -> int:
        """How many long replies the pool holds at once; one block of it belongs to nobody."""
        blocks = -(-(PROMPT_TOKENS + LONG_REPLY_TOKENS) // BLOCK_TOKENS)
        return (BLOCKS - 1) // blocks

    def _room(self, name: str) -> Path:
        return self.folder / f"{name}-{self.starts}"

    def _drafted_server(self) -> VllmServer | None:
        try:
            draft = write_untrained_draft(self.base.model, self._draft_folder)
            return VllmServer(drafted_args(self.base, draft), folder=self._room("drafted"))
        except TurboLabError as error:
            self.no_draft = str(error)
            return None

    def _first_client(self, server: VllmServer) -> list[Timeline]:
        """Requests one after the other, the first refused until the server listens."""
        patient, runs = self.patient, list[Timeline]()

        def send() -> None:
            asked = patient.requests(FIRST_REQUESTS)
            runs.extend(patient.ask(asked, concurrency=1, retries=RETRIES))

        client = threading.Thread(target=send, daemon=True)
        client.start()
        server.wait_ready(READY_S)  # raises when the server dies, with its log
        client.join(READY_S)
        return runs

    def __enter__(self) -> Self:
        """Open."""
        self.open()
        return self
