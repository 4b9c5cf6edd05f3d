#include "cli/idx_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>

#include "base/file.h"
#include "base/text.h"

namespace runnel {
namespace {

constexpr int64_t kMaxItemBytes = int64_t{1} << 28;
constexpr uint8_t kUnsignedByte = 0x08;

gzFile handle(void* file) { return static_cast<gzFile>(file); }

std::string element_name(uint8_t type) {
  switch (type) {
    case 0x09:
      return "signed bytes";
    case 0x0B:
      return "16-bit integers";
    case 0x0C:
      return "32-bit integers";
    case 0x0D:
      return "32-bit floats";
    case 0x0E:
      return "64-bit floats";
    default:
      return "type " + std::to_string(type);
  }
}

}  // namespace

bool looks_like_idx(std::span<const uint8_t> bytes) {
  if (bytes.size() >= 2 && bytes[0] == 0x1F && bytes[1] == 0x8B) return true;
  return bytes.size() >= 4 && bytes[0] == 0 && bytes[1] == 0 && bytes[2] >= 0x08 &&
         bytes[2] <= 0x0E && bytes[3] >= 1 && bytes[3] <= 8;
}

void IdxFile::Close::operator()(void* file) const { gzclose_r(handle(file)); }

Result<IdxFile> IdxFile::open(const std::string& path) {
  Result<RegularFile> file = RegularFile::open(path);
  if (!file.ok()) return file.status();
  IdxFile idx;
  idx.path_ = quote(path, 400);
  idx.file_.reset(gzdopen(file->descriptor(), "rb"));
  if (!idx.file_) return Status(Code::kResourceExhausted, idx.path_ + ": no memory to read it");
  file->release();  // zlib closes it
  if (Status header = idx.read_header(); !header.ok()) return header;
  return idx;
}

int64_t IdxFile::item_bytes() const {
  int64_t bytes = 1;
  for (const int64_t size : item_shape_) bytes *= size;
  return bytes;
}

Status IdxFile::read_header() {
  std::array<uint8_t, 4> magic{};
  if (Status status = read(magic, "its header"); !status.ok()) return status;
  if (magic[0] != 0 || magic[1] != 0) {
    return invalid_argument(path_ +
                            " is not an idx file: expected it to begin with two zero bytes");
  }
  if (magic[2] != kUnsignedByte) {
    return invalid_argument(path_ + " holds " + element_name(magic[2]) +
                            "; expected unsigned bytes (type 8)");
  }
  if (magic[3] < 1 || magic[3] > 4) {
    return invalid_argument(path_ + " has " + std::to_string(magic[3]) +
                            " dimensions; expected 1 to 4");
  }
  int64_t bytes = 1;
  for (int dimension = 0; dimension < magic[3]; ++dimension) {
    std::array<uint8_t, 4> raw{};
    if (Status status = read(raw, "its header"); !status.ok()) return status;
    const int64_t size = int64_t{raw[0]} << 24 | raw[1] << 16 | raw[2] << 8 | raw[3];
    if (size == 0) {
      return invalid_argument(path_ + " has size 0 in dimension " + std::to_string(dimension) +
                              "; expected at least 1");
    }
    if (dimension == 0) {
      items_ = size;
      continue;
    }
    item_shape_.push_back(size);
    bytes *= size;  // below 2^28 * 2^32
    if (bytes > kMaxItemBytes) {
      return invalid_argument(path_ + " has items of more than " + std::to_string(kMaxItemBytes) +
                              " bytes, the most that are read here");
    }
  }
  return {};
}

Status IdxFile::read(std::span<uint8_t> bytes, const std::string& what) {
  size_t done = 0;
  while (done < bytes.size()) {
    const auto piece = static_cast<unsigned>(std::min<size_t>(bytes.size() - done, 1 << 20));
    const int got = gzread(handle(file_.get()), bytes.data() + done, piece);
    if (got < 0) {
      int code = 0;
      return invalid_argument(path_ + " is damaged: " + gzerror(handle(file_.get()), &code));
    }
    if (got == 0) break;
    done += got;
  }
  if (done == bytes.size()) return {};
  return invalid_argument(path_ + " ends early: " + what + " has " + std::to_string(done) +
                          " bytes there; expected " + std::to_string(bytes.size()));
}

Status IdxFile::expect_end() {
  uint8_t extra = 0;
  const int got = gzread(handle(file_.get()), &extra, 1);
  int code = Z_OK;  // not Z_OK if the checksum at the end of a gzip file is missing or wrong
  const char* message = gzerror(handle(file_.get()), &code);
  if (got == 0 && code == Z_OK) return {};
  if (got <= 0) return invalid_argument(path_ + " is damaged: " + message);
  return invalid_argument(path_ + " goes on after the last of the " + std::to_string(items_) +
                          " items that its header announces: the file or its header is damaged");
}

Result<std::optional<std::vector<uint8_t>>> IdxFile::next() {
  if (taken_ == items_) return std::optional<std::vector<uint8_t>>();
  // A header may lie about a size, so memory is taken a megabyte at a time.
  constexpr int64_t kPiece = 1 << 20;
  const std::string what = "item " + std::to_string(taken_) + " of " + std::to_string(items_);
  std::vector<uint8_t> item;
  for (int64_t left = item_bytes(); left > 0; left -= std::min(left, kPiece)) {
    const size_t before = item.size();
    item.resize(before + std::min(left, kPiece));
    if (Status status = read(std::span(item).subspan(before), what); !status.ok()) return status;
  }
  if (++taken_ == items_) {
    if (Status status = expect_end(); !status.ok()) return status;
  }
  return std::optional(std::move(item));
}

}  // namespace runnel
