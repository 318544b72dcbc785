//! The shells: a real server, the real binary, real kill -9.
