//! The data plane of gt client: links to servers, dials local services.
