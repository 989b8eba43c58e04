package main

func writeDocs(dir string, m *machine, o *options, results []*result) error { return nil }
