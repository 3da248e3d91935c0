"""Tools around an ingestion: cost estimate, progress, report, batch files, and Ray clusters."""
