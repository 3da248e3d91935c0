"""An index for pages and agents: a server over HTTP, and the Model Context Protocol."""
