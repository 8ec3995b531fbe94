// Checks a copied log with Go's own golang.org/x/mod/sumdb/note and tlog: go run main.go DIR VKEY < proofs.json
package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type proofs struct {
	Index       int64
	Entry       string
	Path        []string
	OldNote     string
	Consistency []string
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func openNote(text []byte, vkey string) tlog.Tree {
	verifier, err := note.NewVerifier(vkey)
	must(err)
	opened, err := note.Open(text, note.VerifierList(verifier))
	must(err)
	lines := strings.Split(opened.Text, "\n")
	size, err := strconv.ParseInt(lines[1], 10, 64)
	must(err)
	root, err := base64.StdEncoding.DecodeString(lines[2])
	must(err)
	tree := tlog.Tree{N: size}
	copy(tree.Hash[:], root)
	return tree
}

type tiles struct{ dir string }

func (tiles) Height() int                     { return 8 }
func (tiles) SaveTiles([]tlog.Tile, [][]byte) {}
func (t tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	var found [][]byte
	for _, tile := range wanted {
		bytes, err := t.read(tile, "tile/")
		if err != nil {
			return nil, err
		}
		found = append(found, bytes)
	}
	return found, nil
}

// Go writes the height of tiles into their paths; the format does not.
func (t tiles) read(tile tlog.Tile, prefix string) ([]byte, error) {
	path := strings.TrimPrefix(tile.Path(), "tile/8/")
	if prefix == "tile/entries/" {
		path = strings.TrimPrefix(path, "0/")
	}
	return os.ReadFile(filepath.Join(t.dir, prefix+path))
}

func hashes(texts []string) (found []tlog.Hash) {
	for _, text := range texts {
		hash, err := tlog.ParseHash(text)
		must(err)
		found = append(found, hash)
	}
	return found
}

func main() {
	dir, vkey := tiles{os.Args[1]}, os.Args[2]
	text, err := os.ReadFile(filepath.Join(dir.dir, "checkpoint"))
	must(err)
	tree := openNote(text, vkey)
	reader := tlog.TileHashReader(tree, dir)
	root, err := tlog.TreeHash(tree.N, reader)
	must(err)
	if root != tree.Hash {
		must(errors.New("the root over the tiles is another one"))
	}

	var given proofs
	must(json.NewDecoder(os.Stdin).Decode(&given))
	leaf := tlog.RecordHash([]byte(given.Entry))
	must(tlog.CheckRecord(hashes(given.Path), tree.N, tree.Hash, given.Index, leaf))
	old := openNote([]byte(given.OldNote), vkey)
	must(tlog.CheckTree(hashes(given.Consistency), tree.N, tree.Hash, old.N, old.Hash))

	for at := int64(0); at < tree.N; {
		tile := tlog.Tile{H: 8, L: 0, N: at / 256, W: 256}
		if rest := tree.N - at; rest < 256 {
			tile.W = int(rest)
		}
		bundle, err := dir.read(tile, "tile/entries/")
		must(err)
		var indexes []int64
		var leaves []tlog.Hash
		for len(bundle) > 0 {
			end := 2 + int(binary.BigEndian.Uint16(bundle))
			indexes = append(indexes, tlog.StoredHashIndex(0, at))
			leaves = append(leaves, tlog.RecordHash(bundle[2:end]))
			bundle = bundle[end:]
			at++
		}
		stored, err := reader.ReadHashes(indexes)
		must(err)
		for within, hash := range stored {
			if hash != leaves[within] {
				must(fmt.Errorf("entry %d is not in the tree", tile.N*256+int64(within)))
			}
		}
	}
	fmt.Printf("%d entries\n", tree.N)
}
