// The files of server/web/page/, as the build has put them into the program.
#pragma once

#include <span>
#include <string_view>

namespace runnel {

struct PageFile {
  std::string_view path;  // of the request: "/" is index.html
  std::string_view content_type;
  std::string_view content;
};

std::span<const PageFile> page_files();

}  // namespace runnel
