//! Orders of messages between the actors, on virtual time.
