from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Session(_message.Message):
    __slots__ = ("instance", "conversation", "fence")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    instance: str
    conversation: str
    fence: int
    def __init__(self, instance: _Optional[str] = ..., conversation: _Optional[str] = ..., fence: _Optional[int] = ...) -> None: ...

class Author(_message.Message):
    __slots__ = ("id", "name", "tz")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TZ_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    tz: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., tz: _Optional[str] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("id", "text", "author", "written_s", "files", "talk", "left_out")
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_S_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    TALK_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    id: str
    text: str
    author: Author
    written_s: float
    files: _containers.RepeatedCompositeFieldContainer[File]
    talk: _containers.RepeatedCompositeFieldContainer[Message]
    left_out: int
    def __init__(self, id: _Optional[str] = ..., text: _Optional[str] = ..., author: _Optional[_Union[Author, _Mapping]] = ..., written_s: _Optional[float] = ..., files: _Optional[_Iterable[_Union[File, _Mapping]]] = ..., talk: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class File(_message.Message):
    __slots__ = ("name", "note", "text", "image", "image_path", "problem")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_PATH_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    name: str
    note: str
    text: str
    image: str
    image_path: str
    problem: str
    def __init__(self, name: _Optional[str] = ..., note: _Optional[str] = ..., text: _Optional[str] = ..., image: _Optional[str] = ..., image_path: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class FilePart(_message.Message):
    __slots__ = ("start", "content")
    START_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    start: FileStart
    content: bytes
    def __init__(self, start: _Optional[_Union[FileStart, _Mapping]] = ..., content: _Optional[bytes] = ...) -> None: ...

class FileStart(_message.Message):
    __slots__ = ("session", "id", "name", "mimetype")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MIMETYPE_FIELD_NUMBER: _ClassVar[int]
    session: Session
    id: str
    name: str
    mimetype: str
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., id: _Optional[str] = ..., name: _Optional[str] = ..., mimetype: _Optional[str] = ...) -> None: ...

class DropFilesRequest(_message.Message):
    __slots__ = ("session", "ids")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    session: Session
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., ids: _Optional[_Iterable[str]] = ...) -> None: ...

class DropFilesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Note(_message.Message):
    __slots__ = ("id", "text")
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    id: str
    text: str
    def __init__(self, id: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class ExecuteRequest(_message.Message):
    __slots__ = ("session", "prompt", "notes")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    session: Session
    prompt: Message
    notes: _containers.RepeatedCompositeFieldContainer[Note]
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., prompt: _Optional[_Union[Message, _Mapping]] = ..., notes: _Optional[_Iterable[_Union[Note, _Mapping]]] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: Session
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ...) -> None: ...

class RunResult(_message.Message):
    __slots__ = ("answer",)
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    answer: str
    def __init__(self, answer: _Optional[str] = ...) -> None: ...

class DeliveredRequest(_message.Message):
    __slots__ = ("session", "ids")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    session: Session
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., ids: _Optional[_Iterable[str]] = ...) -> None: ...

class DeliveredResponse(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ExecuteInput(_message.Message):
    __slots__ = ("number", "start", "inject", "edit", "withdraw", "stop", "suspend", "reply")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    INJECT_FIELD_NUMBER: _ClassVar[int]
    EDIT_FIELD_NUMBER: _ClassVar[int]
    WITHDRAW_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    SUSPEND_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    number: int
    start: Start
    inject: Message
    edit: Edit
    withdraw: str
    stop: Stop
    suspend: Suspend
    reply: Reply
    def __init__(self, number: _Optional[int] = ..., start: _Optional[_Union[Start, _Mapping]] = ..., inject: _Optional[_Union[Message, _Mapping]] = ..., edit: _Optional[_Union[Edit, _Mapping]] = ..., withdraw: _Optional[str] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., suspend: _Optional[_Union[Suspend, _Mapping]] = ..., reply: _Optional[_Union[Reply, _Mapping]] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("execute", "resume", "owner", "unbegun", "functions")
    EXECUTE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    UNBEGUN_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONS_FIELD_NUMBER: _ClassVar[int]
    execute: ExecuteRequest
    resume: ResumeRequest
    owner: str
    unbegun: _containers.RepeatedScalarFieldContainer[str]
    functions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, execute: _Optional[_Union[ExecuteRequest, _Mapping]] = ..., resume: _Optional[_Union[ResumeRequest, _Mapping]] = ..., owner: _Optional[str] = ..., unbegun: _Optional[_Iterable[str]] = ..., functions: _Optional[_Iterable[str]] = ...) -> None: ...

class Edit(_message.Message):
    __slots__ = ("id", "text", "files")
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    id: str
    text: str
    files: _containers.RepeatedCompositeFieldContainer[File]
    def __init__(self, id: _Optional[str] = ..., text: _Optional[str] = ..., files: _Optional[_Iterable[_Union[File, _Mapping]]] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("immediate", "agent")
    IMMEDIATE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    immediate: bool
    agent: str
    def __init__(self, immediate: _Optional[bool] = ..., agent: _Optional[str] = ...) -> None: ...

class Suspend(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExecutionEvent(_message.Message):
    __slots__ = ("call", "cancel", "receipt", "answer")
    CALL_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    call: Call
    cancel: int
    receipt: Receipt
    answer: str
    def __init__(self, call: _Optional[_Union[Call, _Mapping]] = ..., cancel: _Optional[int] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ..., answer: _Optional[str] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("number", "name", "arguments")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    arguments: str
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("number", "result", "refused", "unavailable")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    number: int
    result: str
    refused: str
    unavailable: str
    def __init__(self, number: _Optional[int] = ..., result: _Optional[str] = ..., refused: _Optional[str] = ..., unavailable: _Optional[str] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("number", "outcome", "reason")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TOO_LATE: _ClassVar[Receipt.Outcome]
        ACCEPTED: _ClassVar[Receipt.Outcome]
        FULL: _ClassVar[Receipt.Outcome]
        REFUSED: _ClassVar[Receipt.Outcome]
    TOO_LATE: Receipt.Outcome
    ACCEPTED: Receipt.Outcome
    FULL: Receipt.Outcome
    REFUSED: Receipt.Outcome
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    number: int
    outcome: Receipt.Outcome
    reason: str
    def __init__(self, number: _Optional[int] = ..., outcome: _Optional[_Union[Receipt.Outcome, str]] = ..., reason: _Optional[str] = ...) -> None: ...
