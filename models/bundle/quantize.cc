#include "models/bundle/quantize.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "base/text.h"
#include "kernels/blocks.h"
#include "kernels/quantize_blocks.h"
#include "models/bundle/gguf.h"

namespace runnel {
namespace {

namespace fs = std::filesystem;

// The endings of the names of large matrices, in all families. The inputs of recurrences must stay
// precise, so the list leaves out gates, decays, low-rank factors, convolutions and embeddings.
constexpr std::string_view kLarge[] = {
    ".query_projection.weight",
    ".key_projection.weight",
    ".value_projection.weight",
    ".out_projection.weight",
    ".linear1.weight",
    ".linear2.weight",
    ".receptance.weight",
    ".key.weight",
    ".value.weight",
    ".output.weight",
    ".r_proj.weight",
    ".q_proj.weight",
    ".k_proj.weight",
    ".v_proj.weight",
    ".i_proj.weight",
    ".o_proj.weight",
    ".in_proj.weight",
    ".out_proj.weight",
    ".gate_proj.weight",
    ".up_proj.weight",
    ".down_proj.weight",
    ".in_proj_qkv.weight",
    ".in_proj_qkvz.weight",
    ".in_proj_z.weight",
    ".input_linear.weight",
    ".output_linear.weight",
    ".w1.weight",
    ".w2.weight",
    ".w3.weight",
    ".experts.gate_up_proj",
    ".experts.down_proj",
};
constexpr std::string_view kHeads[] = {"predictor.weight", "head.weight", "lm_head.weight"};

bool is_large(std::string_view name, const Tensor& tensor) {
  const size_t dimensions = tensor.shape.size();  // experts have three
  if (dimensions < 2 || dimensions > 3 || tensor.shape.back() % kRun != 0) return false;
  return std::ranges::find(kHeads, name) != std::end(kHeads) ||
         std::ranges::any_of(kLarge, [&](std::string_view end) { return name.ends_with(end); });
}

constexpr int64_t kAlignment = 32;
constexpr int64_t kNumbersAtOnce = 1 << 20;  // numbers quantized at a time
constexpr uint32_t kVersion = 3, kString = 8;

int64_t padded(int64_t bytes) { return (bytes + kAlignment - 1) & -kAlignment; }

template <typename T>
void put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_string(std::string& to, std::string_view text) {
  put(to, uint64_t{text.size()});
  to += text;
}

void put_pair(std::string& to, std::string_view key, std::string_view value) {
  put_string(to, key);
  put(to, kString);
  put_string(to, value);
}

class QuantizedFile {
 public:
  QuantizedFile(const Bundle& bundle, StoredType type) : bundle_(bundle), type_(type) {}

  Result<Quantized> write(const std::string& path) {
    for (const auto& [name, tensor] : bundle_.tensors) {
      if (std::ssize(written_name(name)) <= gguf_bounds::kNameBytes) continue;
      return invalid_argument(
          bundle_.directory + ": tensor " + quote(name) + ": expected a name of at most " +
          std::to_string(gguf_bounds::kNameBytes) + " bytes, which a GGUF file can hold");
    }
    out_.open(path, std::ios::binary | std::ios::trunc);
    const std::string start = header();
    out_.write(start.data(), std::ssize(start));
    for (const auto& [name, tensor] : bundle_.tensors) {
      if (Status s = bundle_.memory->check(name); !s.ok()) return s;
      if (Status s = write_tensor(name, tensor); !s.ok()) return s;
      bundle_.memory->release(tensor.bytes);
    }
    out_.close();
    if (!out_) return invalid_argument(path + ": cannot be written: is the disk full?");
    return done_;
  }

 private:
  // The name of a tensor in the file. Qwen3.5 is published with this part of names or without it.
  // With it, they can be longer than a GGUF file allows.
  std::string written_name(std::string name) const {
    constexpr std::string_view kPart = "language_model.";
    const size_t at = bundle_.is_published ? name.find(kPart) : std::string::npos;
    return at == std::string::npos ? name : name.erase(at, kPart.size());
  }

  StoredType type_of(std::string_view name, const Tensor& tensor) const {
    return is_large(name, tensor) ? type_ : tensor.type;
  }

  std::string header() const {
    std::string text = "GGUF";
    put(text, kVersion);
    put(text, uint64_t{bundle_.tensors.size()});
    put(text, uint64_t{2});
    put_pair(text, "general.architecture", "runnel");
    put_pair(text, "general.name", bundle_.spec.name);
    int64_t at = 0;
    for (const auto& [name, tensor] : bundle_.tensors) {
      const StoredType type = type_of(name, tensor);
      put_string(text, written_name(name));
      put(text, static_cast<uint32_t>(tensor.shape.size()));
      for (size_t i = tensor.shape.size(); i-- > 0;) put(text, uint64_t(tensor.shape[i]));
      put(text, gguf_type(type));
      put(text, static_cast<uint64_t>(at));
      at += padded(bytes_of(type, tensor.elements()));
    }
    text.resize(static_cast<size_t>(padded(std::ssize(text))));
    return text;
  }

  void write_padded(std::span<const std::byte> bytes, int64_t written) {
    constexpr std::array<char, kAlignment> kZeros{};
    out_.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    written += std::ssize(bytes);
    out_.write(kZeros.data(), padded(written) - written);
  }

  Status write_tensor(const std::string& name, const Tensor& tensor) {
    done_.bytes_before += std::ssize(tensor.bytes);
    if (!is_large(name, tensor)) {
      ++done_.others;
      done_.bytes_after += std::ssize(tensor.bytes);
      write_padded(tensor.bytes, 0);
      return {};
    }
    ++done_.matrices;
    done_.elements += tensor.elements();
    done_.bytes_after += bytes_of(type_, tensor.elements());
    std::vector<float> numbers(std::min(kNumbersAtOnce, tensor.elements()));
    std::vector<std::byte> blocks(bytes_of(type_, std::ssize(numbers)));
    int64_t written = 0;
    for (int64_t at = 0; at < tensor.elements(); at += kNumbersAtOnce) {
      const auto some = std::span(numbers).first(std::min(kNumbersAtOnce, tensor.elements() - at));
      widen(tensor, at, some);
      quantize_blocks(type_, some, blocks.data());
      if (first_bad_block(type_, blocks.data(), std::ssize(some)) < std::ssize(some)) {
        return invalid_argument(bundle_.directory + ": tensor " + quote(name) +
                                ": a number is too large for the scales of " +
                                format_of(type_).name + "; this model cannot be quantized");
      }
      const auto bytes = std::span(blocks).first(bytes_of(type_, std::ssize(some)));
      const bool is_last = at + kNumbersAtOnce >= tensor.elements();
      if (is_last) {
        write_padded(bytes, written);
      } else {
        out_.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
      }
      written += std::ssize(bytes);
    }
    return {};
  }

  const Bundle& bundle_;
  const StoredType type_;
  std::ofstream out_;
  Quantized done_;
};

// Whether a file holds weights, in any format that publishers use.
bool is_weights(const fs::path& path) {
  constexpr std::string_view kExtensions[] = {".safetensors", ".gguf", ".bin", ".pt", ".pth"};
  return std::ranges::find(kExtensions, path.extension().string()) != std::end(kExtensions) ||
         path.filename() == "model.safetensors.index.json";
}

// Copies all files of the directory except weights. Models use only one subdirectory.
Status copy_files(const std::string& from, const std::string& to) {
  constexpr std::string_view kTemplates = "additional_chat_templates";
  std::error_code error;
  for (fs::directory_iterator at(from, error), end; !error && at != end; at.increment(error)) {
    const fs::path name = at->path().filename();
    if (!is_weights(name) && (at->is_regular_file(error) || name == kTemplates)) {
      fs::copy(at->path(), to / name, fs::copy_options::recursive, error);
    }
  }
  if (!error) return {};
  return invalid_argument(to + ": files of " + from + " cannot be copied: " + error.message());
}

Result<Quantized> write_directory(const Bundle& bundle, StoredType type, const std::string& out) {
  if (Status s = copy_files(bundle.directory, out); !s.ok()) return s;
  return QuantizedFile(bundle, type).write(out + "/model.gguf");
}

}  // namespace

Result<Quantized> quantize(const Bundle& bundle, StoredType type, const std::string& out) {
  std::error_code error;
  const std::string& from = bundle.directory;
  if (is_gguf(from)) {
    return invalid_argument(from + ": a GGUF file; quantize the model that it was made from");
  }
  if (bundle.has_blocks()) return invalid_argument(from + ": its weights are in blocks already");
  if (std::ranges::none_of(bundle.tensors,
                           [](const auto& one) { return is_large(one.first, one.second); })) {
    return invalid_argument(from + ": none of its matrices can be quantized");
  }
  if (bundle.spec.head.kind != HeadKind::kCategorical) {
    return invalid_argument(from + ": its head is " + head_kind_name(bundle.spec.head.kind) +
                            "; only models with a categorical head can be quantized");
  }
  if (fs::exists(out, error)) {
    return invalid_argument(out + ": exists; name a directory that does not exist");
  }
  fs::create_directory(out, error);
  if (error) return invalid_argument(out + ": cannot be made: " + error.message());
  Result<Quantized> done = write_directory(bundle, type, out);
  if (!done.ok()) fs::remove_all(out, error);
  return done;
}

}  // namespace runnel
