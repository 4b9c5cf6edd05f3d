// The files of server/web/page/, which the build has put into the program.
#pragma once

#include <span>
#include <string_view>

namespace runnel {

struct PageFile {
  std::string_view path;  // the path of the request: "/" for index.html
  std::string_view content_type;
  std::string_view content;
};

std::span<const PageFile> page_files();

}  // namespace runnel
