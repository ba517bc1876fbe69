"""What the README shows works as printed."""

import os
import re
import signal
import subprocess
import sys
import unittest

from server import SOURCE, TestServer, eventually, lines_of

from watchbell import Client

README = os.path.join(os.path.dirname(__file__), "..", "README.md")


def blocks():
    with open(README, encoding="utf-8") as file:
        return re.findall(r"```python\n(.*?)```", file.read(), re.S)


class Readme(unittest.TestCase):
    def test_the_ten_lines_work_as_printed(self):
        code = blocks()[0]
        self.assertLessEqual(len([line for line in code.splitlines() if line]), 10)
        with TestServer() as server:
            code = code.replace("http://127.0.0.1:7400", server.url)
            env = {**os.environ, "PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": "1"}
            command = [sys.executable, "-c", code]
            process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
            lines = lines_of(process)
            run_id = eventually(lambda: lines and lines[0], "the id of the run is printed")
            client = Client(server.url)
            self.assertEqual(client.wait(run_id, 10).state, "succeeded")
            self.assertEqual(client.output(run_id).text, "mail for ann@example.com\n")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(10), 0)

    def test_the_client_example_works_as_printed(self):
        code = blocks()[3].replace("timeout=120", "timeout=0.1").replace("delay=60", "delay=1")
        with TestServer() as server:
            env = {**os.environ, "PYTHONPATH": SOURCE, "WATCHBELL_SERVER": server.url}
            done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
            self.assertIn("TimeoutError", done.stderr, "nobody carries it out")
            self.assertEqual(Client(server.url).queue("mail").state.waiting, 3)

    def test_the_examples_of_handlers_are_code(self):
        compile("".join(blocks()[1:3]), "README.md", "exec")


if __name__ == "__main__":
    unittest.main()
