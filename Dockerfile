# What answers from an index: an HTTP API with a page to ask on, or tools for an agent.
#
#   docker build -t densex .
#   docker run -p 8000:8000 -v ./my-index:/index:ro -e DENSEX_TOKEN=... densex
#   docker run -i -v ./my-index:/index:ro densex mcp /index
#
# docs/serving.md has more.
FROM python:3.12-slim
COPY constraints.txt pyproject.toml README.md LICENSE /src/
COPY llama_pack_densex /src/llama_pack_densex
RUN pip install --no-cache-dir -c /src/constraints.txt "/src[files,local,mcp,serve]" && rm -r /src \
    && useradd --create-home densex && mkdir /home/densex/.cache && chown densex /home/densex/.cache
USER densex
EXPOSE 8000
ENTRYPOINT ["densex"]
CMD ["serve", "/index", "--host", "0.0.0.0"]
