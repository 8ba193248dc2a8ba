"""The section `observe`: metrics and health over HTTP, and traces."""

from __future__ import annotations

from service.config.config_errors import ConfigError
from service.config.section import Section
from service.config.slack import Address, address_of


class ObserveConfig(Section):
    """Metrics, health and traces of the service.

    Args:
        listen: address of `/metrics`, `/healthz` and `/readyz`. Default: no server.
        traces: whether runs are traced with OpenTelemetry, as the OTEL_* variables say.
        content: whether traces contain texts, arguments and results.
    """

    listen: Address | None = None
    traces: bool = False
    content: bool = False

    def with_listen(self, listen: str | None) -> ObserveConfig:
        """Return the section with the address of `AMPLIFIER_SLACK_OBSERVE`; `None`: it is not set.

        Raises:
            ConfigError: the address is invalid.
        """
        if listen is None:
            return self
        try:
            address_of(listen)
        except ValueError as e:
            raise ConfigError(f"AMPLIFIER_SLACK_OBSERVE: {e}.") from e
        return self.model_copy(update={"listen": listen})
