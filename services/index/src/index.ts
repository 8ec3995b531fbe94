export * from './config.ts';
export * from './service.ts';
export type { IndexStore } from './store/index-store.ts';
