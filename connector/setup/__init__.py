"""The app's manifest, scopes and credentials."""
