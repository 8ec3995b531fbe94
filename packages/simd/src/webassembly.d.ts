/** What this package uses of the WebAssembly global, which the types of Node leave to the DOM's. */
declare namespace WebAssembly {
  class Module {
    constructor(bytes: Uint8Array);
    static customSections(module: Module, name: string): ArrayBuffer[];
  }
  class Instance {
    constructor(module: Module, imports: object);
    readonly exports: object;
  }
  class Memory {
    readonly buffer: ArrayBuffer;
    grow(pages: number): number;
  }
}
