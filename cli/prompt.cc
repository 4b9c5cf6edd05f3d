#include "cli/prompt.h"

#include <charconv>
#include <filesystem>
#include <string_view>

#include "base/file.h"
#include "base/text.h"
#include "cli/png_file.h"

namespace runnel {
namespace {

Result<std::vector<uint8_t>> idx_image(const ItemName& name, const ImageShape& shape) {
  Result<IdxFile> idx = IdxFile::open(name.path);
  if (!idx.ok()) return idx.status();
  if (Status status = check_idx_shape(*idx, shape, quote(name.path, 400)); !status.ok()) {
    return status;
  }
  if (name.index >= idx->items()) {
    return invalid_argument(quote(name.path, 400) + " has items 0 to " +
                            std::to_string(idx->items() - 1) + "; there is no item " +
                            std::to_string(name.index));
  }
  for (int64_t index = 0;; ++index) {
    auto item = idx->next();
    if (!item.ok()) return item.status();
    if (index == name.index) return std::move(**item);
  }
}

}  // namespace

Result<ItemName> parse_item_name(const std::string& name) {
  std::error_code error;
  const size_t hash = name.rfind('#');
  if (hash == std::string::npos || std::filesystem::exists(name, error)) return ItemName{name};
  ItemName item{.path = name.substr(0, hash), .has_index = true};
  const std::string_view digits = std::string_view(name).substr(hash + 1);
  const auto [end, failed] =
      std::from_chars(digits.data(), digits.data() + digits.size(), item.index);
  if (failed != std::errc() || end != digits.data() + digits.size() || item.index < 0) {
    return invalid_argument(quote(name, 400) +
                            ": expected the number of an item after '#', found " +
                            quote(digits, 40));
  }
  return item;
}

Status check_idx_shape(const IdxFile& idx, const ImageShape& shape, const std::string& file) {
  const std::vector<int64_t>& found = idx.item_shape();
  const std::vector<int64_t> full = {shape.height, shape.width, shape.channels};
  const std::vector<int64_t> grey = {shape.height, shape.width};
  if (found == full || (shape.channels == 1 && found == grey)) return {};
  return invalid_argument(file + " has items of shape " + shape_text(found) +
                          "; the model takes images of " +
                          shape_text(shape.channels == 1 ? grey : full));
}

Result<std::vector<uint8_t>> load_image(const std::string& name, const ImageShape& shape) {
  const Result<ItemName> item = parse_item_name(name);
  if (!item.ok()) return item.status();
  const std::string file = quote(item->path, 400);
  const Result<std::string> head = read_head(item->path, 8);
  if (!head.ok()) return head.status();
  if (looks_like_idx(as_bytes(*head))) return idx_image(*item, shape);
  if (!looks_like_png(as_bytes(*head))) {
    return invalid_argument(file + " is neither a PNG nor an idx file; expected an image");
  }
  if (item->has_index) {
    return invalid_argument(file + " is a PNG file, which holds one image: leave out '#" +
                            std::to_string(item->index) + "'");
  }
  const Result<std::string> bytes = read_file(item->path, kMaxPngFileBytes);
  if (!bytes.ok()) return bytes.status();
  Result<Picture> picture = decode_png(as_bytes(*bytes), shape, file);
  if (!picture.ok()) return picture.status();
  return std::move(picture->bytes);
}

Result<std::vector<int32_t>> image_prompt(const std::string& name, const ImageShape& shape,
                                          int64_t rows) {
  if (rows < 1 || rows >= shape.height) {
    return invalid_argument("--rows is " + std::to_string(rows) + "; the model's images have " +
                            std::to_string(shape.height) + " rows, of which 1 to " +
                            std::to_string(shape.height - 1) + " can be given");
  }
  const Result<std::vector<uint8_t>> image = load_image(name, shape);
  if (!image.ok()) return image.status();
  const int64_t given = rows * shape.width * shape.channels;
  return std::vector<int32_t>(image->begin(), image->begin() + given);
}

}  // namespace runnel
