"""A server that answers like an engine, or fails as it is told to: python fake_server.py PORT MODE.

Modes: ok, slow-start, die-starting, die-serving, hang, error-500, half-way, no-usage, short, other-text, child.
"""

import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, MODE = int(sys.argv[1]), sys.argv[2]
LABELS = [f'engine="{engine}",model_name="m"' for engine in (0, 1)]
counts = {"requests": 0, "steps": 0}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        page = ""
        if self.path == "/metrics":
            n = counts["steps"]
            for labels in LABELS:
                for name, value in (("drafts", n), ("draft_tokens", 3 * n), ("accepted_tokens", 2 * n)):
                    page += f"vllm:spec_decode_num_{name}_total{{{labels}}} {value}.0\n"
                    page += f"vllm:spec_decode_num_{name}_created{{{labels}}} 1.7e9\n"
                for at, share in enumerate((1, 1, 0)):
                    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
                    page += f'{name}{{{labels},position="{at}"}} {share * n}.0\n'
        if self.path == "/v1/models":
            page = json.dumps({"data": [{"id": "fake"}]})
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page.encode())

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        counts["requests"] += 1
        late = counts["requests"] > 2  # the warm-up went well
        if MODE == "die-serving" and late:
            print("out of memory", flush=True)
            os._exit(7)
        if MODE == "hang" and late:
            time.sleep(60)
        if MODE == "error-500" and late:
            body = json.dumps({"error": {"message": "the engine has\nfailed"}}).encode()
            self.send_response(500)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        tokens = asked["max_tokens"] - (MODE == "short" and late)
        start = sum(asked["prompt"])
        for i in range(0, tokens, 3):
            counts["steps"] += 1
            text = f" {start + i}" + ("!" if MODE == "other-text" and late else "")
            self.event({"choices": [{"index": 0, "text": text}]})
            if MODE == "half-way" and late:
                self.close_connection = True
                return
            time.sleep(0.002)
        if MODE != "no-usage":
            self.event({"choices": [], "usage": {"completion_tokens": tokens}})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def event(self, data):
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())


if MODE == "die-starting":
    print("unknown drafter architecture", flush=True)
    sys.exit(3)
if MODE == "child":  # a helper process that would outlive its parent
    subprocess.Popen([sys.executable, "-c", f"import time\n# fake child of {PORT}\ntime.sleep(60)"])
if MODE == "slow-start":
    time.sleep(30)
ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
