-- Types of requests of IPROTO and keys of their bodies, as net.box sends and reads them.
return {
    SELECT = 1, INSERT = 2, REPLACE = 3, UPDATE = 4, DELETE = 5, CALL_16 = 6, AUTH = 7, EVAL = 8, UPSERT = 9, CALL = 10,
    EXECUTE = 11, PREPARE = 13, PING = 64,

    SPACE_ID = 0x10, INDEX_ID = 0x11, LIMIT = 0x12, OFFSET = 0x13, ITERATOR = 0x14, INDEX_BASE = 0x15,
    KEY = 0x20, TUPLE = 0x21, FUNCTION_NAME = 0x22, USER_NAME = 0x23, EXPRESSION = 0x27, OPERATIONS = 0x28,
    OPTIONS = 0x2b, DATA = 0x30, METADATA = 0x32, BIND_METADATA = 0x33, BIND_COUNT = 0x34,
    SQL_TEXT = 0x40, SQL_BIND = 0x41, SQL_INFO = 0x42, STATEMENT_ID = 0x43,
}
