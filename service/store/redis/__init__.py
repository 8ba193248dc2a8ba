"""The run store on Redis."""
