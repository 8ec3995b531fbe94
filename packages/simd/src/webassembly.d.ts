/** The part of the WebAssembly global that this package uses; the types of Node leave it to those of the DOM. */
declare namespace WebAssembly {
  class Module {
    constructor(bytes: Uint8Array);
    static customSections(module: Module, name: string): ArrayBuffer[];
  }
  function compileStreaming(source: Promise<Response>): Promise<Module>;
  class Instance {
    constructor(module: Module, imports: object);
    readonly exports: object;
  }
  class Memory {
    readonly buffer: ArrayBuffer;
    grow(pages: number): number;
  }
}
