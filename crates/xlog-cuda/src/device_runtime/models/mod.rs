//! Models of the resources.
