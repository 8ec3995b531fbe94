export * from './html.ts';
export * from './page-files.ts';
