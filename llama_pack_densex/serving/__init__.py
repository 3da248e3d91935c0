"""An index for pages and agents: a server over HTTP with a page to ask on, and the Model Context Protocol."""
