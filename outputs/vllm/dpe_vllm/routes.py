"""GET /v1/dpe: which table a server runs with, and which entry an answer had. The entry point vllm.endpoint_plugins; vLLM
attaches it only where VLLM_PLUGINS names dpe."""
import os

from dpe_vllm.serving import serving


class Routes:
    name = "dpe"
    required_tasks = None

    def attach_router(self, app):
        from fastapi import HTTPException

        if not os.environ.get("DPE_TABLE"):
            return

        @app.get("/v1/dpe")
        def dpe(id: str | None = None):  # pylint: disable=redefined-builtin
            if id is None:
                return serving().describe()
            texts = serving().answers(id)
            if not texts:
                raise HTTPException(404, f"no answer {id!r} among the last ones: expected the id of an answer of this server")
            return {"id": id, "table": serving().describe()["table"],
                    "texts": [{"id": name, "entry": entry, "digest": serving().digests.get(entry)}
                              for name, entry in texts.items()]}

    async def init_state(self, engine_client, state, args):
        """Nothing: the table is read from DPE_TABLE."""
