# gRPC and protobuf from archives, for a program that needs libc and libm alone. pkg-config names the
# archives (asked once: each answer takes it a second); the linker goes round them until nothing is missing,
# because they need each other.
find_package(PkgConfig REQUIRED)
execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --static --libs-only-l grpc++ protobuf
  OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "-l[^ \n]+" flags "${flags}")
list(REMOVE_DUPLICATES flags)
set(archives)
foreach(flag ${flags})
  string(SUBSTRING ${flag} 2 -1 name)
  find_library(archive ${name} NO_CACHE)  # not found: gcc's own, which gcc adds itself
  if(archive)
    list(APPEND archives ${archive})
  endif()
  unset(archive)
endforeach()
list(JOIN archives "," archives)
target_link_libraries(runnel_grpc INTERFACE "$<LINK_GROUP:RESCAN,${archives}>" Threads::Threads)
target_link_options(runnel_grpc INTERFACE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
