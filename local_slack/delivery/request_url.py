"""Select the transport of the app: its request URL, or Socket Mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_slack.delivery.http_delivery import HttpDelivery
from local_slack.workspace.errors import LocalSlackError

if TYPE_CHECKING:
    from local_slack.delivery.delivery import Delivery
    from local_slack.delivery.recorder import Recorder
    from local_slack.delivery.signature import Signer
    from local_slack.delivery.socket_mode import SocketMode


class RequestUrl:
    """Own the HTTP transport while a request URL is set."""

    def __init__(self, delivery: Delivery, socket_mode: SocketMode, signer: Signer, record: Recorder) -> None:
        self._delivery = delivery
        self._socket_mode = socket_mode
        self._signer = signer
        self._record = record
        self._http: HttpDelivery | None = None

    @property
    def url(self) -> str | None:
        return self._http.url if self._http else None

    async def set(self, url: str | None, *, verify: bool = True) -> None:
        """Use this URL from now on. Without ``verify`` the challenge is sent before the first request.

        Raises LocalSlackError and changes nothing if the URL does not echo the challenge.
        """
        http = HttpDelivery(url, self._delivery, self._signer, self._record) if url else None
        if http and verify:
            try:
                await http.verify()
            except LocalSlackError:
                await http.close()
                raise
        before, self._http = self._http, http
        self._socket_mode.set_over_http(http is not None)
        self._delivery.use(http)
        if before:
            await before.close()

    async def close(self) -> None:
        await self.set(None)
