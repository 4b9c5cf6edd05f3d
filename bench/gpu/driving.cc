#include "bench/gpu/driving.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <thread>

namespace runnel {
namespace {

constexpr const char* kUsage =
    "expected BUNDLE [--kernels own|cublas] [--gpu-state plain|replay] [--prompts steps|chunks] "
    "[--precision fp32|bf16] [--whole on|off] [--cluster 1|2|4|8|16] [--together 1|2|4|8|16] "
    "[--costs FILE] [--batches N,N,...] [--seconds S] [--sweep off|on] [--top-k K] [--top-p P]";

// Reads a flag that has two possible values. Returns true for the second.
bool second_of(const std::string& flag, const std::string& word, const char* first,
               const char* second) {
  if (word != first && word != second) {
    give_up(flag + " is '" + word + "'; it must be " + first + " or " + second);
  }
  return word == second;
}

std::vector<int> numbers_of(const std::string& flag, const std::string& word) {
  std::vector<int> numbers;
  std::istringstream text(word);
  for (std::string one; std::getline(text, one, ',');) numbers.push_back(std::atoi(one.c_str()));
  if (numbers.empty()) give_up(flag + " is empty; expected numbers, separated by commas");
  for (const int number : numbers) {
    if (number < 1 || number > 4096) give_up(flag + " is '" + word + "'; expected 1 to 4096 each");
  }
  return numbers;
}

Spec language_model(int layers) {
  Spec spec;
  spec.name = "lm";
  LinearTransformerSpec sizes;
  sizes.layers = layers;
  sizes.width = sizes.value_width = 2048;
  sizes.heads = 16;
  sizes.query_size = sizes.value_size = 128;
  sizes.ffn = 8192;
  sizes.activation = Activation::kGelu;
  spec.vocabulary = 50'000;
  sizes.combine = Combine::kAdd;
  sizes.position = PositionKind::kSinusoidal;
  spec.head = {HeadKind::kCategorical, spec.vocabulary, 0};
  spec.begin = Begin{};
  spec.model = sizes;
  return spec;
}

// Uniform numbers of variance 1 / fan-in; 1 for the weights of norms, 0 for biases. The generator
// must be about as fast as memory, because there are a billion numbers.
std::vector<float> random_weights(const ExpectedTensor& tensor, uint64_t seed) {
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  const bool is_norm = tensor.name.find("norm") != std::string::npos;
  if (tensor.shape.size() == 1) {
    return std::vector<float>(count, is_norm && tensor.name.ends_with("weight") ? 1.0F : 0.0F);
  }
  const float scale = std::sqrt(3.0F / static_cast<float>(tensor.shape.back()));
  std::vector<float> weights(count);
  for (float& weight : weights) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    weight = scale * (static_cast<float>(seed >> 40) * 0x1p-23F - 1.0F);
  }
  return weights;
}

}  // namespace

void give_up(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::fflush(nullptr);
  std::_Exit(1);  // without destructors: a backend's threads may still be at work
}

Settings settings_of(int argc, char** argv) {
  Settings settings;
  if (argc < 2 || argc % 2 != 0) give_up(kUsage);
  settings.bundle = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string word = argv[i + 1];
    if (flag == "--kernels") {
      settings.options.library = second_of(flag, word, "own", "cublas");
    } else if (flag == "--gpu-state") {
      settings.options.replay = second_of(flag, word, "plain", "replay");
    } else if (flag == "--prompts") {
      settings.options.chunks = second_of(flag, word, "steps", "chunks");
    } else if (flag == "--precision") {
      const bool bf16 = second_of(flag, word, "fp32", "bf16");
      settings.precision = bf16 ? Precision::kBf16 : Precision::kFp32;
    } else if (flag == "--whole") {
      settings.options.whole = second_of(flag, word, "off", "on");
    } else if (flag == "--cluster") {
      settings.options.cluster = numbers_of(flag, word)[0];
    } else if (flag == "--together") {
      settings.options.together = numbers_of(flag, word)[0];
    } else if (flag == "--costs") {
      const Result<LayerCosts> costs = read_layer_costs(word);
      if (!costs.ok()) give_up(flag + ": " + costs.status().message());
      settings.options.costs = *costs;
    } else if (flag == "--sweep") {
      settings.sweep = second_of(flag, word, "off", "on");
    } else if (flag == "--batches") {
      settings.batches = numbers_of(flag, word);
    } else if (flag == "--seconds") {
      settings.seconds = std::atof(word.c_str());
    } else if (flag == "--top-k") {
      settings.sampling.top_k = numbers_of(flag, word)[0];
    } else if (flag == "--top-p") {
      settings.sampling.top_p = static_cast<float>(std::atof(word.c_str()));
    } else {
      give_up("unknown flag " + flag + "; " + kUsage);
    }
  }
  return settings;
}

Bundle bundle_of(const Settings& settings, int layers) {
  if (settings.bundle != "lm") {
    Result<Bundle> bundle = load_bundle(settings.bundle);
    if (!bundle.ok()) give_up(bundle.status().message());
    return std::move(*bundle);
  }
  Bundle bundle;
  bundle.spec = language_model(layers);
  const auto memory = std::make_shared<OwnedTensors>();
  uint64_t seed = 1;
  for (const ExpectedTensor& tensor : expected_tensors(bundle.spec)) {
    bundle.tensors[tensor.name] = memory->add(tensor.shape, random_weights(tensor, ++seed));
  }
  bundle.memory = memory;
  return bundle;
}

std::unique_ptr<Backend> gpu_of(const Settings& settings) {
  auto gpu = make_cuda_backend(settings.options);
  if (!gpu.ok()) give_up(gpu.status().message());
  return std::move(*gpu);
}

std::unique_ptr<Model> model_of(const Bundle& bundle, Backend& backend, const ModelLimits& limits,
                                Precision precision) {
  auto model = make_model(bundle, backend, limits, precision);
  if (!model.ok()) give_up(model.status().message());
  return std::move(*model);
}

void finish(Model& model, Ticket ticket, std::vector<Emitted>& emitted) {
  emitted.clear();
  while (true) {
    const Result<bool> done = model.collect(ticket, emitted);
    if (!done.ok()) give_up(done.status().message());
    if (*done) return;
    std::this_thread::yield();
  }
}

void begin(Model& model, SlotId slot, uint64_t seed, int64_t count, const Sampling& sampling) {
  Control control;
  control.sampling = sampling;
  control.seed = seed;
  control.pending = model.spec().begin ? model.spec().begin->value : 0;
  control.remaining = count;
  model.set(slot, control, true);
}

std::vector<float> score(Model& model, const std::vector<int32_t>& values) {
  Control control;
  control.pending = values[0];
  model.set(0, control, true);
  const Row row = {0, std::span(values).subspan(1), Want::kScores};
  std::vector<Emitted> emitted;
  finish(model, model.submit({&row, 1}, 1), emitted);
  std::vector<float> log_probs;
  for (const Emitted& at : emitted) log_probs.push_back(at.log_prob);
  return log_probs;
}

}  // namespace runnel
