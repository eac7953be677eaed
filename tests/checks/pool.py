# SPDX-License-Identifier: BSD-3-Clause
"""Workers that run the steps of ./check."""

import threading
import time

from . import results


class Pool:
    """Runs steps in their order, as soon as a worker, all that they need and their resource are free."""

    def __init__(self, todo, show):
        """`show(step, result, seconds)` is called once for each step, never for two at a time."""
        self.todo, self.show = list(todo), show
        self.known = {step.name for step in todo}
        self.ended, self.broken, self.busy = set(), set(), set()
        self.skipped = {}
        self.finished = []
        self.changed = threading.Condition()

    def next_step(self):
        for step in self.todo:
            waits = [name for name in step.needs if name in self.known and name not in self.ended]
            if not waits and step.alone not in self.busy:
                return step
        return None

    def take(self):
        """The next step to run, or None when all are taken."""
        with self.changed:
            self.changed.wait_for(lambda: not self.todo or self.next_step())
            step = self.next_step()
            if step:
                self.todo.remove(step)
                if step.alone:
                    self.busy.add(step.alone)
            return step

    def end(self, step, result, seconds):
        with self.changed:
            self.ended.add(step.name)
            self.busy.discard(step.alone)
            if result.failed:
                self.broken.add(step.name)
            elif result.skipped and not result.passed:
                self.skipped[step.name] = result.skip_reasons[0]
            self.finished.append(result)
            self.show(step, result, seconds)
            self.changed.notify_all()

    def work(self):
        while (step := self.take()):
            start = time.monotonic()
            self.end(step, self.result_of(step), time.monotonic() - start)

    def result_of(self, step):
        missing = [name for name in step.needs if name in self.broken]
        if missing:
            return results.failed_to_start(missing)
        for name in step.needs:
            if name in self.skipped:
                return results.skipped(self.skipped[name])
        return step.run()

    def run(self, workers):
        threads = [threading.Thread(target=self.work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
