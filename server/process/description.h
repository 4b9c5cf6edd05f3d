// /openapi.json: what the doors that speak HTTP say of their paths, as one document.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace runnel {

struct ServerContext;

// The components that the doors share, and the path of the document: openapi.json of this folder.
std::string_view shared_description();

// That and the paths and components of `doors`, of which no two say the same. Where a file has the
// name of a limit for a number ("limits.samples"), the limit of this server replaces it.
std::string joined_description(std::span<const std::string_view> doors, const ServerContext& state);

}  // namespace runnel
