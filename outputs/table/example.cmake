# Installed as share/dpe/example/CMakeLists.txt, where it stands alone:
# cmake -S share/dpe/example -B build -DCMAKE_PREFIX_PATH=where/dpe/is/installed
cmake_minimum_required(VERSION 3.16)
project(dpe_table_example LANGUAGES C)

add_executable(positions_example positions_example.c)

# The two lines that a runtime needs.
find_package(dpe_table REQUIRED)
target_link_libraries(positions_example PRIVATE dpe::dpe_table)
