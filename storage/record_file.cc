#include "storage/record_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "base/sha256.h"
#include "storage/record.h"

namespace runnel {
namespace {

constexpr std::array<char, 8> kMagic = {'r', 'u', 'n', 'n', 'e', 'l', '\n', '\1'};
constexpr size_t kLeastArea = 4096;  // a page, so that no page belongs to both areas

// The beginning of an area. All zeros: nothing was written to it.
struct Header {
  std::array<char, 8> magic{};
  uint64_t number = 0;
  uint64_t size = 0;  // of the text
  Sha256Digest digest{};
  std::array<char, 8> writer{};  // as RecordFile::writer_
};
static_assert(sizeof(Header) == 64 && std::endian::native == std::endian::little);
constexpr size_t kMostArea = std::bit_ceil(sizeof(Header) + static_cast<size_t>(kMostRecordBytes));

Sha256Digest digest_of(const Header& header, std::string_view text) {
  Sha256 hash;
  hash.add(std::as_bytes(std::span(&header.number, 1)));
  hash.add(std::as_bytes(std::span(text)));
  return hash.finish();
}

// The bytes of an area up to the end of its text.
std::string area_of(Header header, std::string_view text) {
  header.magic = kMagic;
  header.size = text.size();
  header.digest = digest_of(header, text);
  std::string area(sizeof(Header) + text.size(), '\0');
  std::memcpy(area.data(), &header, sizeof(Header));
  std::ranges::copy(text, area.begin() + sizeof(Header));
  return area;
}

Status damaged_file() { return {Code::kDataLoss, "neither of its two texts is whole"}; }

}  // namespace

Result<RecordFile> RecordFile::open(const Folder& folder, const std::string& name) {
  RecordFile record(name);
  const auto file = folder.open_file(name);
  if (!file.ok() && file.status().code() == Code::kNotFound) return record;
  if (!file.ok()) return file.status();
  if (Status s = record.read(folder, *file); !s.ok()) return s;
  return record;
}

Status RecordFile::read(const Folder& folder, const OpenFile& file) {
  const auto bytes = folder.size_of(file);
  if (!bytes.ok()) return bytes.status();
  area_bytes_ = *bytes / 2;
  if (area_bytes_ < kLeastArea || area_bytes_ > kMostArea) return damaged_file();
  struct Area {
    size_t begin = 0;
    Header header;
  };
  std::array<Area, 2> areas;
  for (size_t i = 0; i < areas.size(); ++i) {
    areas[i].begin = i * area_bytes_;
    const auto read = folder.read_at(file, areas[i].begin, sizeof(Header));
    if (!read.ok()) return read.status();
    if (read->size() == sizeof(Header)) std::memcpy(&areas[i].header, read->data(), sizeof(Header));
  }
  if (areas[1].header.number > areas[0].header.number) std::swap(areas[0], areas[1]);
  for (const auto& [begin, header] : areas) {
    if (header.magic != kMagic || header.size > area_bytes_ - sizeof(Header)) continue;
    auto text = folder.read_at(file, begin + sizeof(Header), header.size);
    if (!text.ok()) return text.status();
    if (text->size() != header.size || digest_of(header, *text) != header.digest) continue;
    text_ = std::move(*text);
    number_ = header.number;
    writer_ = header.writer;
    other_ = begin == 0 ? area_bytes_ : 0;
    return {};
  }
  return damaged_file();
}

bool RecordFile::is_of_good_size(size_t needed) const {
  return needed <= area_bytes_ && area_bytes_ <= std::max(kLeastArea, 4 * needed);
}

// The new file may have its name already, but not on the disk. Zeros in place of the writer make
// the next durable write sync the name, as if another writer had made the file.
void RecordFile::forget_writer(const Folder& folder) const {
  const std::string none(sizeof(Header::writer), '\0');
  static_cast<void>(folder.overwrite(name_, offsetof(Header, writer), none, false));
}

Status RecordFile::write(Folder& folder, std::string_view text, bool durable) {
  Header header = {.number = number_ + 1};
  folder.writer().copy(header.writer.data(), header.writer.size());
  std::string area = area_of(header, text);
  if (!text_ || !is_of_good_size(area.size())) {
    const size_t area_bytes = std::max(kLeastArea, std::bit_ceil(area.size()));
    area.resize(2 * area_bytes);
    Status replaced = folder.replace(name_, [&] { return std::exchange(area, ""); }, durable);
    if (!replaced.ok() && durable) forget_writer(folder);
    return replaced;
  }
  // Another writer may have been killed before it synced the text, or the name of the file. Without
  // this sync, a loss of power while the new text is synced could damage both texts.
  if (durable && writer_ != header.writer) {
    if (Status s = folder.sync(name_); !s.ok()) return s;
  }
  Status written = folder.overwrite(name_, other_, area, durable);
  if (!written.ok()) {
    const std::string zeros(sizeof(Header), '\0');
    static_cast<void>(folder.overwrite(name_, other_, zeros, durable));
  }
  return written;
}

}  // namespace runnel
