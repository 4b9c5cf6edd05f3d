#!/usr/bin/env python3
"""bench/gpu/gpu_check with fake programs: the parts that it runs, the failures that it finds, and its files."""

import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 900  # seconds until a run of gpu_check counts as a hang: the machine may be busy with other things
TESTS = "[  PASSED  ] 5 tests."
STEP = (
    '{"model": "random-mnist", "numerics": "cuda/sm90/bf16/step/state-fp32", "batch": 1024, "values_per_s": 1566000.0, '
    '"step_us": 653.9, "p50_us": 650, "p99_us": 660, "state_gb_s": 846.7, "state_bytes": 270336, '
    '"parameters": 6360000, "image_values": 783}'
)
PEERS = """{"torch": "2.6", "checked_on": "cuda"}
{"peer": "eager", "model": "random-mnist", "batch": 1024, "values_per_s": 100000.0}
{"peer": "graph", "model": "random-mnist", "batch": 1024, "values_per_s": 522000.0}
{"peer": "softmax", "model": "random-mnist", "batch": 1024, "values_per_s": 9000000.0}
{"peer": "compiled", "model": "random-mnist", "skipped": "RuntimeError: no compiler"}"""
SERVED = (
    '{"model": "random-mnist", "numerics": "cuda/sm90/bf16/step/state-fp32", "throughput": '
    '[{"what": "streams", "batch": 64, "values_per_s": 78300.0}]}'
)
SAMPLED = """{
 "model": "mnist-small",
 "throughput": [
  {"what": "engine", "batch": 32, "values_per_s": 44947.4}
 ]
}"""
SAYS = {
    "nvidia-smi": "A GPU, 580.1, 143771 MiB, 1980 MHz",
    "test_kernels": TESTS,
    "test_models": TESTS,
    "test_golden": TESTS,
    "gpu_ceilings": '{"device": "A GPU", "l2_bytes": 62914560, "copy_gb_s": 4300.0, '
    '"read_gb_s": {"8": 9000, "48": 6000}, "clock_mhz": 2000, "st_async_hop_us": {"2": 0.3, "16": null}, '
    '"meeting_us": {"2x512": 0.45, "16x2048": 1.25}, "bulk_latency_us": 0.5, "bulk_gb_s_block": 100, '
    '"bulk_gb_s_all": 8000, "bulk_gb_s_all_in_step": 7000, "multicast_gb_s_delivered": {"2_one": 300, "8_all": null}, '
    '"multicast_gb_s_read": {"2_one": 150, "8_all": null}, "state_gb_s_block": 70, "state_gb_s_all": null}',
    "gpu_steps": STEP,
    "gpu_compare": '{"images": 100, "worst_from_cpu": 8e-4}',
    "gpu_sessions": '{"sessions": 511000}',
}


class GpuCheck(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)
        self.programs = self.place / "programs"
        self.out = self.place / "out"
        self.logs = self.place / "out.logs"
        self.gpu_check = self.root() / "bench" / "gpu" / "gpu_check"
        self.programs.mkdir()
        for name, text in SAYS.items():
            self.program(name, f"cat <<'END'\n{text}\nEND")
        for name in ("test_kernels", "test_models", "test_golden"):
            self.suites(name, f"echo '{TESTS}'")
        # The demo's server and its client.
        self.program(
            "runnel",
            'case $1 in serve) trap "kill $!; exit 0" TERM; echo "ready address=127.0.0.1:1" >&2; '
            f"sleep 60 & wait ;; bench) case $* in *engine*) echo '{SAMPLED}' ;; *) echo '{SERVED}' ;; esac ;; esac",
        )
        for absent in ("compute-sanitizer", "python3"):
            self.program(absent, "exit 1")
        os.remove(self.programs / "compute-sanitizer")
        self.program("nproc", "echo 16")

    def root(self):
        """Copies the files that gpu_check reads, with a generator that makes models at once."""
        root = self.place / "root"
        for path in (
            "bench/gpu/gpu_check",
            "bench/gpu/report.py",
            "bench/gpu/serving",
            "scripts/start_server",
            "scripts/demo",
        ):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, root / path)
        (root / "zoo").symlink_to(ROOT / "zoo")
        (root / "models" / "rwkv7").mkdir(parents=True)  # a folder with code, not a bundle
        (root / "scripts" / "runnel-random-bundle").write_text(
            "import pathlib, sys\nat = pathlib.Path(sys.argv[sys.argv.index('--out') + 1])\n"
            "at.mkdir(parents=True)\n(at / 'config.json').write_text('{}')\n"
        )
        return root

    def program(self, name, body):
        path = self.programs / name
        path.write_text("#!/bin/sh\n" + body + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def suites(self, name, body):
        """Makes a program with two suites of tests. `body` gets the filter as $1."""
        listed = "One.\\n  Test\\nTwo.\\n  Test/0  # of it\\n"
        self.program(name, f'case $1 in *list*) printf "{listed}" ;; *) {body} ;; esac')

    def check(self, *parts):
        environment = dict(os.environ, PATH=f"{self.programs}:/usr/bin:/bin")
        return subprocess.run(
            [self.gpu_check, self.programs, self.out, *parts],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            check=False,
        )

    def figures(self):
        return json.loads((self.out / "gpu.json").read_text())

    def parts(self):
        lines = (self.out / "parts.jsonl").read_text().splitlines()
        return {part["part"]: part for part in map(json.loads, lines)}

    def test_all_parts_run_and_a_table_follows(self):
        result = self.check()
        self.assertEqual(result.returncode, 0, result.stdout)
        parts = self.parts()
        for name in (
            "kernels",
            "models",
            "golden",
            "library",
            "library_models",
            "demo",
            "ceilings",
            "steps_mnist",
            "steps_mnist_replay",
            "steps_mnist_operations",
            "steps_mnist_cublas",
            "steps_mnist_sweep",
            "steps_lm",
            "steps_lm_cublas",
            "steps_cifar10",
            "steps_rwkv7",
            "steps_mamba2",
            "compare",
            "serving",
            "sessions",
            "cpu_threads",
        ):
            self.assertEqual(parts[name]["exit"], 0, name)
        self.assertIn("no PyTorch", parts["peers"]["skipped"])
        self.assertNotIn("churn", parts)
        self.assertIn("Copies reach 4300 GB/s", result.stdout)
        self.assertRegex(
            (self.out / "gpu.md").read_text(),
            r"(?m)^\| engine \| random-mnist \|.*\| 1024 \| 2,000.0 \| images",
        )

    def test_its_limits_are_under_ten_minutes(self):
        script = (ROOT / "bench" / "gpu" / "gpu_check").read_text()
        script = re.sub("(?m)^.*tests host.*$", "", script)  # this part runs instead of all others
        found = re.findall(r"(?:part|tests|sanitize) \"?([\w$]+)\"? (\d+) ", script)
        limits = {name: int(seconds) for name, seconds in found if name != "$name"}
        self.assertEqual(limits.pop("churn"), 900)
        self.assertGreater(len(limits), 26)
        tries = len(re.findall(r"(?m)^smoke ", script))
        before = re.findall(r"timeout (\d+) nvidia-smi", script) + re.findall(r"=\$\(bundle mnist (\d+)\)", script)
        self.assertEqual(len(before), 2)
        twice = limits.pop("steps_$preset")  # for RWKV-7 and Mamba-2
        self.assertLessEqual(sum(limits.values()) + 2 * twice + 5 * tries + sum(map(int, before)), 560)
        self.assertIn("\nend=570 ", script)

    def test_a_part_gets_no_more_time_than_is_left(self):
        script = (ROOT / "bench" / "gpu" / "gpu_check").read_text()
        self.assertIn("\npart ceilings 8 ", script)
        # Half a minute in all. Most of it is left when the first part begins, even on a busy machine.
        script = script.replace("\nend=570 ", "\nend=30 ").replace("\npart ceilings 8 ", "\npart ceilings 60 ")
        self.gpu_check.write_text(script)
        self.program("gpu_ceilings", "sleep 100")
        result = self.check("ceilings", "sessions")
        self.assertEqual(result.returncode, 1)
        self.assertIn(self.parts()["ceilings"]["exit"], (124, 137))
        self.assertEqual(self.parts()["sessions"]["skipped"], "no time left")

    def test_only_the_parts_named_run(self):
        result = self.check("ceilings", "steps_mnist")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(set(self.parts()), {"ceilings", "steps_mnist"})

    def test_a_part_without_its_library_is_skipped_with_the_reason(self):
        self.program(
            "gpu_steps",
            f"""case "$*" in
            *cublas*) echo "--kernels cublas needs NVIDIA's cuBLASLt, of which none is here (x)"; exit 1 ;; esac
            echo '{STEP}'""",
        )
        result = self.check("steps_mnist", "steps_mnist_cublas")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("none is here", self.parts()["steps_mnist_cublas"]["skipped"])

    def test_figures_are_compared_with_paper_peer_and_limit(self):
        self.check("ceilings", "steps_mnist", "serving")
        (self.logs / "peers.log").write_text(PEERS)
        subprocess.run(
            ["/usr/bin/python3", ROOT / "bench" / "gpu" / "report.py", self.logs],
            stdout=subprocess.PIPE,
            check=True,
        )
        engine, served, *_ = json.loads((self.logs / "gpu.json").read_text())
        self.assertEqual(
            (engine["what"], engine["unit"], engine["per_s"]),
            ("engine", "images", 2000.0),
        )
        self.assertEqual((engine["gpu"], engine["driver"]), ("A GPU", "580.1"))
        self.assertAlmostEqual(engine["ratio_to_paper"], 2000 / 142.8, 3)
        self.assertAlmostEqual(engine["ratio_to_peer"], 3.0)  # the softmax is another network
        moved = 2 * 6360000 + 2 * 1024 * 270336
        self.assertAlmostEqual(engine["share_of_limit"], 1566000 / (1024 * 4.3e12 / moved), 3)
        self.assertEqual((served["what"], served["batch"], served["per_s"]), ("grpc", 64, 100.0))
        self.assertIsNone(served["ratio_to_peer"])
        plot = self.out / "gpu.png"
        if (
            subprocess.run(
                ["/usr/bin/python3", "-c", "import matplotlib"],
                stderr=subprocess.PIPE,
                check=False,
            ).returncode
            == 0
        ):
            subprocess.run(
                [
                    "/usr/bin/python3",
                    ROOT / "bench" / "gpu" / "plot.py",
                    self.out / "gpu.json",
                    plot,
                ],
                check=True,
            )
            self.assertEqual(plot.read_bytes()[:4], b"\x89PNG")
        cached = 2 * 6360000 + 2 * 64 * 270336  # all within 30 MB, where reads reach 6 TB/s
        self.assertAlmostEqual(served["share_of_limit"], 78300 / (64 * 6e12 / cached), 3)

    def test_ceilings_are_listed_with_the_constants_that_estimate_them(self):
        self.assertEqual(self.check("ceilings").returncode, 0)
        table = (self.logs / "gpu.md").read_text()
        for row in (
            "| a hop between two of 2 blocks | 0.3 | us | 600 cycles |  |",
            "| a meeting, blocks x bytes from each: 16x2048 | 1.25 | us | 2,500 cycles | meeting = 700 |",
            "| a bulk copy of 2 KiB from the cache | 0.5 | us | 1,000 cycles |  |",
            "| bulk copies from the cache, one block | 100 | GB/s | 50 bytes a cycle | cache_block = 48 |",
            "| bulk copies from the cache, all blocks | 8,000 | GB/s | 4,000 bytes a cycle | cache = 4200 |",
            "| delivered by multicast, blocks of a cluster: 2, one cluster | 300 | GB/s | 150 bytes a cycle |  |",
            "| states read and written, one block | 70 | GB/s | 35 bytes a cycle | memory_block = 40 |",
        ):
            self.assertIn(row + "\n", table)
        self.assertNotIn("memory =", table)  # not measured

    def test_costs_come_from_the_measured_ceilings(self):
        self.assertEqual(self.check("ceilings").returncode, 0)
        measured = {"meeting": 900, "cache_block": 50, "cache": 4000, "memory_block": 35}
        self.assertEqual(json.loads((self.out / "costs.json").read_text()), measured)

    def test_without_ceilings_there_are_no_costs(self):
        self.program("gpu_ceilings", "echo '{\"copy_gb_s\": 4300.0}'")
        self.assertEqual(self.check("ceilings").returncode, 0)
        self.assertFalse((self.out / "costs.json").exists())

    def test_the_constants_of_the_report_match_the_kernel(self):
        header = (ROOT / "kernels" / "cuda" / "layer_costs.h").read_text()
        report = (ROOT / "bench" / "gpu" / "report.py").read_text()
        constants = re.search(r"(?m)^LAYER_COSTS = (\{.*\})$", report)
        for name, value in json.loads(constants.group(1)).items():
            self.assertRegex(header, rf"int64_t {name} = {value};")

    def test_threads_of_the_cpu_are_a_table(self):
        self.assertEqual(self.check("cpu_threads").returncode, 0)
        table = (self.logs / "gpu.md").read_text()
        for threads in (1, 2, 4, 8, 16):
            self.assertIn(f"| {threads} | mnist-small | 32 | 44,947 |", table)

    def test_threads_are_not_measured_on_two_cores(self):
        self.program("nproc", "echo 2")
        self.assertEqual(self.check("cpu_threads").returncode, 0)
        self.assertIn("two cores", self.parts()["cpu_threads"]["skipped"])

    def test_a_run_that_is_cut_short_leaves_its_report(self):
        self.program("gpu_compare", "kill -9 $(ps -o ppid= -p $PPID)")  # the parent of the program's parent
        self.assertNotEqual(self.check("ceilings", "steps_mnist", "compare").returncode, 0)
        self.assertEqual(len(self.figures()), 1)

    def test_a_skipped_test_is_a_failure(self):
        self.suites(
            "test_models",
            "echo '[  SKIPPED ] CudaModelTest.EqualsTheCpu/GpuImageBf16'; echo '" + TESTS + "'",
        )
        result = self.check("models")
        self.assertEqual(result.returncode, 1)
        self.assertIn("GpuImageBf16", result.stdout)

    def test_no_test_at_all_is_a_failure(self):
        self.suites("test_golden", "echo '[  PASSED  ] 0 tests.'")
        result = self.check("golden")
        self.assertEqual(result.returncode, 1)
        self.assertIn("golden ran nothing", result.stdout)

    def test_every_suite_has_a_process_of_its_own(self):
        self.suites(
            "test_kernels",
            f'echo "ran $1"; echo "{TESTS}"; case $1 in *One*) kill -9 $$ ;; esac',
        )
        self.assertEqual(self.check("kernels").returncode, 1)
        ran = re.findall("ran (.*)", (self.logs / "kernels.log").read_text())
        self.assertEqual(ran, ["--gtest_filter=One.Test", "--gtest_filter=Two.Test/0"])

    def test_results_are_a_few_small_files(self):
        # A log that does not compress. A file must hold fifty times its size.
        self.program("gpu_sessions", "head -c 3000000 /dev/urandom")
        result = self.check("ceilings", "sessions")
        self.assertEqual(result.returncode, 0, result.stdout)
        names = {path.name for path in self.out.iterdir()}
        self.assertEqual(names, {"device.txt", "parts.jsonl", "gpu.json", "gpu.md", "costs.json", "logs.tar.gz"})
        with tarfile.open(self.out / "logs.tar.gz") as archive:
            self.assertIn("./ceilings.log", archive.getnames())
            self.assertLess(50 * archive.getmember("./sessions.log").size, 16 << 20)

    def test_a_part_whose_program_is_not_in_the_bundle_is_skipped(self):
        os.remove(self.programs / "test_golden")
        result = self.check("golden", "ceilings")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(self.parts()["golden"]["skipped"], "no such program in this bundle")

    def test_other_parts_run_after_one_hangs_or_crashes(self):
        script = self.gpu_check.read_text()
        self.assertIn('part compare 12 "', script)
        self.gpu_check.write_text(script.replace('part compare 12 "', 'part compare 1 "'))
        self.program("gpu_compare", "trap '' TERM; while :; do sleep 1; done")
        self.program("gpu_sessions", "kill -SEGV $$")
        result = self.check("compare", "steps_mnist_replay", "sessions", "kernels")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.parts()["compare"]["exit"], 137)
        self.assertEqual(self.parts()["sessions"]["exit"], 139)
        for name in ("steps_mnist_replay", "kernels"):
            self.assertEqual(self.parts()[name]["exit"], 0)
        self.assertEqual(len(self.figures()), 1)

    def test_the_profiler_may_lack_permission_but_must_profile_kernels(self):
        self.program("ncu", "echo '==ERROR== ERR_NVGPUCTRPERM: no permission'; exit 1")
        self.assertEqual(self.check("ncu").returncode, 0)
        self.assertIn("PERM", self.parts()["ncu"]["skipped"])
        self.program("ncu", "echo '==WARNING== No kernels were profiled.'")
        result = self.check("ncu")
        self.assertEqual(result.returncode, 1)
        self.assertIn("ncu profiled nothing", result.stdout)

    def test_a_killed_run_leaves_the_logs_of_finished_parts(self):
        self.program("gpu_sessions", f"kill -9 $(ps -o ppid= -p $PPID); ls {self.out}")
        self.assertNotEqual(self.check("ceilings", "sessions").returncode, 0)
        with tarfile.open(self.out / "logs.tar.gz") as archive:
            self.assertIn("./ceilings.log", archive.getnames())

    def test_sanitizers_check_the_whole_model_kernel_too(self):
        self.program("compute-sanitizer", f'echo "$*"; echo "{TESTS}"')
        self.assertEqual(self.check("racecheck", "synccheck_whole").returncode, 0)
        self.assertEqual(set(self.parts()), {"racecheck", "synccheck_whole"})
        self.assertIn("OnTheGpu/Image1By16Times1", (self.logs / "synccheck_whole.log").read_text())

    def test_a_sanitizer_that_ran_no_test_is_a_failure(self):
        self.program("compute-sanitizer", "echo '[  PASSED  ] 0 tests.'")
        result = self.check("memcheck")
        self.assertEqual(result.returncode, 1)
        self.assertIn("memcheck ran nothing", result.stdout)

    def test_after_a_crash_or_hang_the_rest_runs_by_operations(self):
        for body in ("kill -SEGV $$", "sleep 60"):
            self.program(
                "gpu_steps",
                f"""case "$*" in *"--cluster 16"*) {body} ;; esac
                echo '{STEP}'; echo "flags $*" """,
            )
            result = self.check("smoke_operations", "smoke_sixteen", "steps_mnist", "serving", "models")
            self.assertEqual(result.returncode, 1)
            self.assertEqual(self.parts()["smoke_operations"]["exit"], 0)
            self.assertNotEqual(self.parts()["smoke_sixteen"]["exit"], 0)
            self.assertEqual(self.parts()["steps_mnist"]["exit"], 0)
            self.assertIn("--whole off", (self.logs / "steps_mnist.log").read_text())
            self.assertIn("with a kernel for each operation", result.stdout)
            self.assertGreater(len(self.figures()), 0)

    def test_the_watchdog_names_the_barrier_of_a_kernel_that_hangs(self):
        line = "watchdog: block 3 thread 0 waits at 1024 (meetings at 1024) for phase 1"
        self.program("gpu_steps", f"echo '{line}'; for i in 1 2 3 4 5 6; do echo more; done; exit 1")
        result = self.check("smoke_pair")
        self.assertEqual(result.returncode, 1)
        self.assertIn(line, result.stdout)

    def test_figures_of_a_part_whose_bits_differ_are_reported(self):
        self.program("gpu_steps", f"echo '{STEP}'; exit 1")
        result = self.check("steps_mnist")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(self.figures()), 1)

    def test_other_parts_run_after_one_fails(self):
        self.suites("test_kernels", "echo '[  FAILED  ] Matmul'; exit 1")
        result = self.check("kernels", "steps_mnist")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.parts()["kernels"]["exit"], 1)
        self.assertEqual(self.parts()["steps_mnist"]["exit"], 0)

    def test_a_missing_driver_is_reported_with_a_remedy(self):
        os.remove(self.programs / "nvidia-smi")
        result = self.check()
        self.assertEqual(result.returncode, 1)
        self.assertIn("no NVIDIA driver", result.stdout)
        self.assertRegex(
            result.stdout,
            "Not run: ceilings smoke_operations .*steps_mnist .*sessions .*kernels",
        )
        ran = {name for name, part in self.parts().items() if part.get("exit") == 0}
        self.assertEqual(ran, {"host", "demo"})
        self.assertTrue((self.out / "logs.tar.gz").exists())

    def test_a_driver_without_a_gpu_is_reported(self):
        self.program("nvidia-smi", "echo 'No devices were found'; exit 6")
        result = self.check("ceilings")
        self.assertEqual(result.returncode, 1)
        self.assertIn(
            "nvidia-smi finds no GPU: No devices were found. Not run: ceilings",
            result.stdout,
        )

    def test_a_missing_program_is_named(self):
        os.remove(self.programs / "gpu_steps")
        result = self.check()
        self.assertEqual(result.returncode, 1)
        self.assertIn("has no gpu_steps", result.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=1)
