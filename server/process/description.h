// /openapi.json: what the doors that speak HTTP say of their paths, as one document.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace runnel {

// What the doors share, and the path of the document: openapi.json of this folder.
std::string_view shared_description();

// That and the paths and components of `doors`, of which no two say the same.
std::string joined_description(std::span<const std::string_view> doors);

}  // namespace runnel
