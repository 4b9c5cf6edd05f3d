#include <zlib.h>

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/file.h"
#include "models/state/file.h"
#include "tests/fuzz/properties.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {
namespace {

constexpr size_t kStartBytes = 16;

StateLayout layout() {
  return {.state_bytes = 64,
          .parts = {{"S", DType::kF32, {2, 3, 2}, 0, 32}, {"z", DType::kF32, {2, 2}, 24, 32}},
          .numerics = "cpu"};
}

// The file with correct checksums and a correct digest, where it has any.
std::string repaired(std::string file) {
  if (file.size() < kStartBytes) return file;
  uint32_t header = 0;
  std::memcpy(&header, file.data() + 12, sizeof(header));
  size_t at = kStartBytes + header;
  for (const StatePart& part : layout().parts) {
    const auto size = static_cast<size_t>(bytes_of(part));
    if (at + size + 4 > file.size()) return file;
    const auto sum =
        static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(file.data() + at), size));
    std::memcpy(file.data() + at + size, &sum, sizeof(sum));
    at += size + 4;
  }
  Seal seal(nullptr);
  seal.add(std::as_bytes(std::span(file).first(at)));
  return file.substr(0, at) + std::string(as_text(seal.finish())) +
         file.substr(std::min(file.size(), at + kSealBytes));
}

Result<StateImage> read(std::string_view file, size_t cut) {
  static const Spec kSpec = small_symbol_spec();
  static const StateLayout kLayout = layout();
  static const std::string kModel = model_digest(kSpec, "");
  StateReader reader(
      [](const StateHeader& header) -> Result<StateLayout> {
        const StateTarget target = {.spec = kSpec, .layout = kLayout, .model = kModel};
        if (Status s = check_state(header, target); !s.ok()) return s;
        return kLayout;
      },
      nullptr);
  for (const std::string_view piece : {file.substr(0, cut), file.substr(cut)}) {
    if (Status s = reader.add(std::as_bytes(std::span(piece))); !s.ok()) return s;
  }
  return reader.finish();
}

std::string written(const StateImage& image) {
  StateWriter writer(model_digest(small_symbol_spec(), ""), layout(), image, nullptr);
  return writer.next(1 << 16);
}

}  // namespace

bool check_state_file(std::string_view input) {
  const std::string file = repaired(std::string(input));
  const Result<StateImage> image = read(file, file.size() / 3);
  const Result<StateImage> whole = read(file, file.size());
  check(image.status() == whole.status(), "pieces change nothing");
  if (!image.ok()) {
    const std::string message = image.status().message();
    check(message.find('\n') == std::string::npos && message.find("state file") < 5, "one line");
    return false;
  }
  for (size_t at = 0; at < image->bytes.size(); at += 4) {
    float number = 0;
    std::memcpy(&number, image->bytes.data() + at, sizeof(number));
    check(number == 0 || std::isnormal(number), "every number is zero or of full precision");
  }
  const std::string again = written(*image);
  const Result<StateImage> same = read(again, 1);
  check(same.ok() && same->bytes == image->bytes && same->position == image->position &&
            same->pending == image->pending,
        "what is written reads back the same");
  return true;
}

std::vector<std::string> state_seeds() {
  StateImage empty = {.position = 0, .pending = kNoValue, .bytes = {}};
  empty.bytes.resize(64);
  StateImage full = {.position = 5, .pending = 3, .bytes = empty.bytes};
  for (int i = 0; i < 16; ++i) {
    const float number = 0.25F * static_cast<float>(i) - 1;
    std::memcpy(full.bytes.data() + i * 4, &number, sizeof(number));
  }
  return {written(empty), written(full)};
}

std::span<const std::string_view> state_words() {
  static constexpr std::string_view kWords[] = {"RNLSTATE",
                                                "\"model\"",
                                                "\"numerics\"",
                                                "\"position\"",
                                                "\"pending\"",
                                                "\"seal_key\"",
                                                "\"owner\"",
                                                "\"issued\"",
                                                "\"expires\"",
                                                "\"parts\"",
                                                "\"name\"",
                                                "\"type\"",
                                                "\"shape\"",
                                                "\"f32\"",
                                                "\"i32\"",
                                                "[",
                                                "]",
                                                "null",
                                                "-1",
                                                "1e40",
                                                "9007199254740993"};
  return kWords;
}

}  // namespace runnel
