"""One file a subject: what a request may hold, what it asks the engine for, and what is answered."""
