"""A store whose directory hangs, as on a dead file server: calls end in time, and the server stops when told to.

Needs grpcio and protobuf.
"""

from __future__ import annotations

import os
import signal
import unittest

from fleet import PATIENCE, Call, FleetTest, make

from runnel_client import Client, Retry, errors

# Without logs: after a second of rest, the server would replace a log with a state, and overwrite the test's record.
# The timeout is the test's wait for the store that hangs. On a busy machine, the default would also end other calls.
FLAGS = ("--grace-ms", "100", "--storage-log-bytes", "0", "--storage-timeout-ms", "10000")


class HangingStoreTest(FleetTest):
    def test_calls_end_in_time_and_the_server_stops(self) -> None:
        [replica] = self.fleet(*FLAGS, proxied=False, count=1).replicas
        reference = self.stack.enter_context(Client(self.untouched.grpc, timeout=PATIENCE)).session("s")
        before, after = Call("The river was ", 30, 1), Call(" but ", 30, 2)
        with Client(replica.grpc, retry=Retry(attempts=1), timeout=PATIENCE) as client:
            session = client.session("s", keep=True)
            heard = make(session, before, 0)
            self.assertEqual(heard, make(reference, before, None))
            [record] = (self.folder / "fleet" / "store").glob("*.record")
            aside = record.with_suffix(".aside")
            record.rename(aside)
            blocks = record.with_suffix(".json")  # where version 0.2.0 had the record
            os.mkfifo(blocks)  # nobody writes to it, so opening it for reading blocks
            with self.assertRaises(errors.Unavailable):
                make(session, after, heard.position)
            self.assertEqual(len(list(client.generate("The ", max_values=5, ignore_eos=True).values())), 5)
        replica.signal(signal.SIGTERM)
        self.assertEqual(replica.wait(), 0, replica.log())
        self.assertIn("the process ends without it", replica.log())
        blocks.unlink()
        aside.rename(record)
        replica.start()
        with Client(replica.grpc, timeout=PATIENCE) as client:
            self.assertEqual(make(client.open_session("s"), after, heard.position), make(reference, after, None))


if __name__ == "__main__":
    unittest.main()
