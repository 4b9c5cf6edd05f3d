// The program `runnel`: the server, and the commands that talk to one. Only this file knows which
// backends exist.
#include <fcntl.h>
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/help.h"
#include "cli/serve.h"
#include "kernels/cpu/choose_isa.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/machine.h"
#include "kernels/cuda/cuda_backend.h"
#include "models/make_model.h"
#include "server/process/serve.h"

namespace runnel {
namespace {

// Makes the models of this process, one at a time. All models on the CPU share one thread pool.
class ModelMaker {
 public:
  Result<LoadedModel> operator()(const Bundle& bundle, const ServerConfig& config,
                                 const ModelLimits& limits);

 private:
  Result<std::unique_ptr<Backend>> make_backend(const ServerConfig& config);

  std::shared_ptr<CpuThreads> threads_;  // null until a model needs them
};

// With `auto`, uses the GPU if there is one; settings that only a GPU supports then require it.
Result<std::unique_ptr<Backend>> ModelMaker::make_backend(const ServerConfig& config) {
  if (config.backend != "cpu") {
    const CudaOptions options = {.library = config.kernels == "cublas",
                                 .replay = config.gpu_state == "replay",
                                 .chunks = config.prompts == "chunks",
                                 .whole = config.network == "whole"};
    Result<std::unique_ptr<Backend>> gpu = make_cuda_backend(options);
    const bool absent = !gpu.ok() && gpu.status().code() == Code::kFailedPrecondition;
    const bool plain = !options.library && !options.replay && !options.chunks && options.whole;
    if (absent && !plain) {
      return Status(gpu.status().code(),
                    gpu.status().message() +
                        ", with kernels own, gpu_state plain, prompts steps and network whole");
    }
    if (config.backend == "cuda" || !absent) return gpu;
  }
  if (threads_ == nullptr) {
    auto threads = make_cpu_threads(static_cast<int>(config.threads));
    if (!threads.ok()) return threads.status();
    threads_ = std::move(*threads);
  }
  CpuOptions options;
  options.shared = threads_;
  if (config.isa != "auto") {
    const Result<Isa> isa = parse_isa(config.isa);
    if (!isa.ok()) return isa.status();
    options.isa = *isa;
  }
  return make_cpu_backend(options);
}

// Weights in blocks stay in blocks on a CPU. On a GPU they do so only if the setting asks for it,
// because products with blocks have not been measured on a GPU yet.
Precision precision_for(const Bundle& bundle, const std::string& asked, const Backend& backend) {
  if (asked == "int8") return Precision::kInt8;
  if (asked == "bf16") return Precision::kBf16;
  if (asked == "fp32") return Precision::kFp32;
  const bool keeps_blocks = bundle.has_blocks() && backend.device() == DeviceKind::kCpu;
  return asked == "blocks" || keeps_blocks ? Precision::kBlocks : backend.preferred();
}

Result<LoadedModel> ModelMaker::operator()(const Bundle& bundle, const ServerConfig& config,
                                           const ModelLimits& limits) {
  Result<std::unique_ptr<Backend>> backend = make_backend(config);
  if (!backend.ok()) return backend.status();
  LoadedModel loaded;
  loaded.backend = std::move(*backend);
  if (loaded.backend->device() == DeviceKind::kCpu) {
    const cpu::IsaChoice& best = cpu::best_isa();
    loaded.instructions = config.isa == "auto" ? isa_name(best.isa) + (", " + best.why)
                                               : config.isa + ", as asked for";
  }
  loaded.precision = precision_for(bundle, config.precision, *loaded.backend);
  std::optional<DType> cache;
  if (config.cache != "auto") cache = config.cache == "bf16" ? DType::kBF16 : DType::kF32;
  Result<std::unique_ptr<Model>> model =
      make_model(bundle, *loaded.backend, limits, loaded.precision, cache);
  if (!model.ok()) return model.status();
  loaded.model = std::move(*model);
  return loaded;
}

// Logs how many cores and how much memory this process may use, and what sets the limit: the
// affinity mask, or a file of a control group.
void log_machine(const EventLog& log) {
  const cpu::UsableCores cores = cpu::find_usable_cores();
  const cpu::FreeMemory memory = cpu::find_free_memory();
  log.info("machine", {{"cores", int64_t{cores.count}},
                       {"cores_from", cores.from},
                       {"free_memory", memory.bytes},
                       {"free_memory_from", memory.from}});
}

int run_serve(const ServerConfig& config, const Rereading& rereading,
              const ModelFactory& load_on_device) {
  const EventLog log(config.log_level, config.log_json);
  log_machine(log);
  Console console = standard_console();
  if (!console.err_terminal) return serve(config, rereading, load_on_device, log, RUNNEL_VERSION);
  std::optional<ProgressLine> line;
  const auto show_loading = [&](int64_t done, int64_t all) {
    if (!line) line.emplace(progress_line(console, "MiB"));
    if (all > 0) return line->update(done >> 20, all >> 20);
    line->clear();
    line.reset();
  };
  return serve(config, rereading, load_on_device, log, RUNNEL_VERSION, show_loading);
}

// Starts the program again with /dev/null for each standard stream that is closed. Otherwise the
// next file or connection that is opened gets the number of the closed stream, and the program
// reads its input from there, or writes its log there. Libraries open files before main(), so it is
// too late to only fill the gaps. /dev/null is opened in the wrong mode, so that reading and
// writing still fail.
void hold_standard_streams(char** words) {
  bool is_held = false;
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const int flags = fcntl(stream, F_GETFD);
    // A descriptor with FD_CLOEXEC was opened by a library, because exec() would have closed it.
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) continue;
    const int null = open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (null < 0) return;
    if (null != stream) {
      dup2(null, stream);
      close(null);
    }
    is_held = true;
  }
  if (is_held) execv("/proc/self/exe", words);
}

// Turns off the libraries' own log lines: they repeat errors that are already reported as a status
// or in our log. Setting GRPC_VERBOSITY turns gRPC's on again.
void silence_libraries() {
  google::protobuf::SetLogHandler(nullptr);
  if (std::getenv("GRPC_VERBOSITY") == nullptr) {
    gpr_set_log_function([](gpr_log_func_args*) {});
  }
}

int run(int argc, char** argv) {
  // Writing to a closed connection fails that call, and writing to a closed log is ignored; neither
  // may kill the server. If the reader of standard output is gone, the command removes what nobody
  // can use any more, such as a key that was not shown, and then fails.
  std::signal(SIGPIPE, SIG_IGN);
  Program program(
      "Serves recurrent models (linear transformers, RWKV, Mamba, gated linear attention) "
      "and hybrids over gRPC and HTTP",
      RUNNEL_VERSION);
  const Command root = program.root();
  ModelMaker maker;
  const ModelFactory load_on_device = std::ref(maker);
  add_serve_command(root, [&](const ServerConfig& config, const Rereading& rereading) {
    return run_serve(config, rereading, load_on_device);
  });
  add_client_commands(root);
  add_bench(root, load_on_device);
  add_help_commands(root, RUNNEL_VERSION);
  Console console = standard_console();
  return delivered(console, program.run({argv + 1, argv + argc}, console));
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) {
  runnel::hold_standard_streams(argv);
  runnel::silence_libraries();
  return runnel::run(argc, argv);
}
