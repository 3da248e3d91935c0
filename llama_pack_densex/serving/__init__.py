"""An index served to people and agents: over HTTP with a web page, and by the Model Context Protocol."""
