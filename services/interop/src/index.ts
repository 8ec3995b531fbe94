export { interop, startInterop, type Interop, type InteropInit } from './service.ts';
export type { InteropConfig } from './config.ts';
