#include "cli/score_input.h"

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "cli/idx_file.h"
#include "cli/input.h"
#include "cli/png_file.h"
#include "cli/prompt.h"
#include "cli/values_text.h"

namespace runnel {
namespace {

using ValueLists = std::vector<std::vector<int32_t>>;

constexpr int64_t kMaxTextBytes = int64_t{1} << 30;
constexpr int64_t kMaxScoreTextBytes = int64_t{1} << 34;  // bytes in memory
constexpr int64_t kMaxSequenceBytes = int64_t{1} << 32;   // bytes of all sequences in memory

std::vector<int32_t> widen(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

Result<ValueLists> load_idx(const std::string& path, const ModelView& model, int64_t first) {
  Result<IdxFile> idx = IdxFile::open(path);
  if (!idx.ok()) return idx.status();
  const std::string file = quote(path, 400);
  if (Status status = check_idx_shape(*idx, *model.image, file); !status.ok()) return status;
  const int64_t count = std::min(first, idx->items());
  if (count > kMaxSequenceBytes / 4 / idx->item_bytes()) {
    return invalid_argument(file + " has " + with_commas(idx->items()) +
                            " items, too many to score at once: take fewer with --first");
  }
  ValueLists sequences;
  while (static_cast<int64_t>(sequences.size()) < count) {
    auto item = idx->next();
    if (!item.ok()) return item.status();
    sequences.push_back(widen(**item));
  }
  return sequences;
}

// The name of a file in errors.
std::string title(const std::string& path) {
  return path == kStandardInput ? "standard input" : quote(path, 400);
}

Result<ValueLists> load_numbers(const std::string& path, const ModelView& model, int64_t first) {
  const std::string file = title(path);
  const Result<std::string> text = read_input(path, kMaxTextBytes);
  if (!text.ok()) return text.status();
  Result<ValueLists> sequences = parse_value_lines(*text, model.vocabulary, file, first);
  if (!sequences.ok() && model.has_text) {
    return invalid_argument(sequences.status().message() + "; for text add --text");
  }
  if (sequences.ok() && sequences->empty()) {
    return invalid_argument(file + " holds no value; expected an idx or PNG file, or numbers");
  }
  return sequences;
}

// Each sequence must have a value to predict, and must not be longer than the model allows.
Status check_lengths(const ValueLists& sequences, const ModelView& model, const std::string& file) {
  for (size_t index = 0; index < sequences.size(); ++index) {
    const auto length = static_cast<int64_t>(sequences[index].size());
    const std::string which = file + ", sequence " + std::to_string(index);
    if (length < 2) {
      return invalid_argument(which +
                              " has one value; scoring needs two or more, as the first "
                              "is not predicted");
    }
    if (model.max_length > 0 && length > model.max_length) {
      return invalid_argument(which + " has " + std::to_string(length) +
                              " values; sequences of model " + quote(model.name) +
                              " have at most " + std::to_string(model.max_length));
    }
  }
  return {};
}

Result<ValueLists> load_file(const std::string& name, const ModelView& model, int64_t first) {
  const Result<ItemName> item = parse_item_name(name);
  if (!item.ok()) return item.status();
  const std::string file = quote(item->path, 400);
  const Result<std::string> head = read_head(item->path, 8);
  if (!head.ok()) return head.status();
  const bool idx = looks_like_idx(as_bytes(*head));
  const bool pictures = idx || looks_like_png(as_bytes(*head));
  if (pictures && !model.image) {
    return invalid_argument(file + " holds images; model " + quote(model.name) +
                            " takes symbols: give values as text, one sequence per line");
  }
  Result<ValueLists> sequences = ValueLists();
  if (pictures && (item->has_index || !idx)) {
    const Result<std::vector<uint8_t>> image = load_image(name, *model.image);
    if (!image.ok()) return image.status();
    sequences = ValueLists{widen(*image)};
  } else if (idx) {
    sequences = load_idx(item->path, model, first);
  } else if (item->has_index) {
    return invalid_argument(file + " is a text, whose lines have no numbers: leave out '#" +
                            std::to_string(item->index) + "'");
  } else {
    sequences = load_numbers(item->path, model, first);
  }
  return sequences;
}

}  // namespace

Result<ValueLists> load_sequences(const std::string& name, const ModelView& model, int64_t first) {
  Result<ValueLists> sequences =
      name == kStandardInput ? load_numbers(name, model, first) : load_file(name, model, first);
  if (!sequences.ok()) return sequences;
  const Result<ItemName> item = parse_item_name(name);  // the load has parsed it, too
  const std::string file = title(item.ok() ? item->path : name);
  if (Status status = check_lengths(*sequences, model, file); !status.ok()) return status;
  return sequences;
}

Result<std::string> load_score_text(const std::string& name, const ModelView& model) {
  if (!model.has_text) {
    return invalid_argument("--text is for models of text; model " + quote(model.name) +
                            " has no tokenizer: give numbers, one sequence per line");
  }
  Result<std::string> text = read_text(name, kMaxScoreTextBytes);
  if (text.ok() && text->empty()) return invalid_argument("there is no text to score: it is empty");
  return text;
}

}  // namespace runnel
