"""Agent sessions in another process, over gRPC. `sessions.proto` is the protocol."""
