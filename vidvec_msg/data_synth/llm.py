"""One chat request by the official client, and the endpoint's Batch API; openai's second home.

What an answer means stands here and in :mod:`vidvec_msg.embedders.endpoint.connection`; whether and when a
request is sent again is :mod:`vidvec_msg.data_synth.patience`' matter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from vidvec_msg.data_synth.chat import Reply, reply_of
from vidvec_msg.embedders.endpoint.connection import Connection
from vidvec_msg.embedders.endpoint.retries import Mishap


@dataclass(slots=True)
class ChatEndpoint(Connection):
    """A chat model behind an OpenAI-compatible endpoint.

    The client's aiohttp transport is used: its own costs as much again as all the rest of a request.
    """

    _client: Any = field(init=False, repr=False, default=None)

    service: ClassVar[str] = "chat/completions"

    async def ask(self, body: Mapping[str, Any]) -> Reply:
        """Sends one request, not streamed, and reads the answer.

        Args:
            body: from :func:`vidvec_msg.data_synth.chat.request_body`.

        Raises:
            Busy: 429.
            Mishap: 5xx, a time-out, a cut connection, an answer that cannot be read; another try may help.
            Unfit: the request is refused, in the endpoint's words.
            RefusedRequest: key, model or address are wrong, or the quota is used up.
        """
        import openai

        url, raw = f"{self.base_url}/chat/completions", openai.HttpxBinaryResponseContent
        try:
            # parsed here: typed models of an answer cost more than the rest of the request
            answer = json.loads((await self._opened().post(url, body=body, cast_to=raw)).content)
        except (openai.APIError, ValueError) as error:
            raise self.meaning(error) from None
        try:
            if not isinstance(answer, Mapping):
                raise ValueError(f"an answer that is a {type(answer).__name__}")
            return self.reply(answer)
        except (ValueError, TypeError) as error:
            raise Mishap(self.clean(f"{error}: {answer}")) from None

    def reply(self, content: Mapping[str, Any]) -> Reply:
        """The reply in a chat completion, without the key, should it repeat it.

        Raises:
            ValueError: it is no chat completion.
        """
        found = reply_of(content)
        return replace(found, text=self.without_key(found.text), refusal=self.without_key(found.refusal))

    async def close(self) -> None:
        """Closes the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # --- the Batch API: https://platform.openai.com/docs/api-reference/batch --------------------------------

    async def submit(self, lines: list[Mapping[str, Any]], *, run: str) -> str:
        """Uploads requests as one batch and starts it.

        Args:
            lines: rows ``custom_id``, ``method``, ``url``, ``body``.
            run: name of the run, kept in the batch's metadata so that it can be found again.

        Returns:
            the batch's id.
        """
        import openai

        content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
        try:
            uploaded = await self._opened().files.create(file=("requests.jsonl", content), purpose="batch")
            batch = await self._opened().batches.create(
                input_file_id=uploaded.id,
                endpoint="/v1/chat/completions",
                completion_window="24h",
                metadata={"vidvec_msg_run": run},
            )
        except (openai.APIError, ValueError) as error:
            raise self.meaning(error) from None
        return str(batch.id)

    async def batches_of(self, run: str) -> list[str]:
        """Ids of the endpoint's latest batches that carry this run's name."""
        import openai

        try:
            page = await self._opened().batches.list(limit=100)
        except (openai.APIError, ValueError) as error:
            raise self.meaning(error) from None
        return [str(one.id) for one in page.data if (one.metadata or {}).get("vidvec_msg_run") == run]

    async def batch(self, batch_id: str) -> Any:
        """The state of a batch: status, counts, ids of its output files."""
        import openai

        try:
            return await self._opened().batches.retrieve(batch_id)
        except (openai.APIError, ValueError) as error:
            raise self.meaning(error) from None

    async def file_lines(self, file_id: str) -> list[dict[str, Any]]:
        """The rows of an output file; a line that is no JSON object is left out."""
        import openai

        try:
            content = await self._opened().files.content(file_id)
        except (openai.APIError, ValueError) as error:
            raise self.meaning(error) from None
        rows = []
        for line in content.text.split("\n"):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                rows.append(row)
        return rows

    def _opened(self) -> Any:
        """A client, made on first use inside the running loop."""
        if self._client is None:
            import openai

            transport = openai.DefaultAioHttpClient(timeout=self.timeout)
            self._client = openai.AsyncOpenAI(**self.client_options(), http_client=transport)
        return self._client
