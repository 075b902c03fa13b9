# Instruction-set flags of the kernel files; included by ../CMakeLists.txt. Every file is compiled on
# every processor, but the files of another processor are empty there.
