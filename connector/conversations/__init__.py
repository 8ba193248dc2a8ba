"""Process the inbox of a conversation: one worker per conversation, on the process that holds its lease."""
