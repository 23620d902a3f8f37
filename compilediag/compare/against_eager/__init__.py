"""A program compiled against itself under the stance "force_eager": does compiling pay?"""
