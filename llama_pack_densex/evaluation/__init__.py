"""The evaluation room: datasets with known answers, metrics, strategies to compare, reports.

It sits on top of the other rooms, and nothing but the command line imports it. Metrics of rankings need the extra
`evaluation` (`pip install "llama-pack-densex[evaluation]"`); reading datasets does not.
"""
