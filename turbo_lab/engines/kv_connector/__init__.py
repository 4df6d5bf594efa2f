"""A KV connector over one TCP socket: a prefilling engine keeps blocks, a decoding one fetches.

``turbo_lab.parallel.kv_connector`` is what vLLM loads inside its own process; the files here know
neither torch nor vLLM.
A prefix is kept after its prefill (``store``), sent in frames that carry a digest (``wire``,
``sender``), optionally in fewer bytes (``codec``), and written into the consumer's blocks
(``fetch``). ``scheduling`` decides what is kept and fetched, ``working`` does it. ``args`` builds
the arguments of both servers and reads the log.
"""
