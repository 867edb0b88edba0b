(** Inner products and norms of vectors and matrices: what every chapter uses. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Bilinear.
Variables (R : comRingType) (m n : nat).
Implicit Types (A B C : 'M[R]_(m, n)) (c : R).

Lemma dotE A B : dot A B = \tr (A^T *m B).
Proof.
rewrite /dot exchange_big; apply: eq_bigr => k _; rewrite mxE.
by apply: eq_bigr => i _; rewrite mxE.
Qed.
Lemma dotC A B : dot A B = dot B A.
Proof. by apply: eq_bigr => i _; apply: eq_bigr => k _; rewrite mulrC. Qed.
Lemma dotDl A B C : dot (A + B) C = dot A C + dot B C.
Proof. by rewrite !dotE linearD mulmxDl mxtraceD. Qed.
Lemma dotZl c A B : dot (c *: A) B = c * dot A B.
Proof. by rewrite !dotE linearZ -scalemxAl mxtraceZ. Qed.
Lemma dotNl A B : dot (- A) B = - dot A B.
Proof. by rewrite -scaleN1r dotZl mulN1r. Qed.
Lemma dotBl A B C : dot (A - B) C = dot A C - dot B C.
Proof. by rewrite dotDl dotNl. Qed.
Lemma dotDr A B C : dot A (B + C) = dot A B + dot A C.
Proof. by rewrite dotC dotDl !(dotC A). Qed.
Lemma dotZr c A B : dot A (c *: B) = c * dot A B.
Proof. by rewrite dotC dotZl dotC. Qed.
Lemma dotNr A B : dot A (- B) = - dot A B.
Proof. by rewrite dotC dotNl dotC. Qed.
Lemma dotBr A B C : dot A (B - C) = dot A B - dot A C.
Proof. by rewrite dotDr dotNr. Qed.
Lemma dot0l A : dot 0 A = 0.
Proof. by rewrite -(scale0r 0) dotZl mul0r. Qed.
Lemma dot0r A : dot A 0 = 0.
Proof. by rewrite dotC dot0l. Qed.
Lemma dot_suml I r (P : pred I) (F : I -> 'M[R]_(m, n)) B :
  dot (\sum_(i <- r | P i) F i) B = \sum_(i <- r | P i) dot (F i) B.
Proof.
apply: (big_ind2 (fun x y => dot x B = y)) => // [|x1 x2 y1 y2 <- <-]; first exact: dot0l.
exact: dotDl.
Qed.
Lemma dot_sumr I r (P : pred I) (F : I -> 'M[R]_(m, n)) B :
  dot B (\sum_(i <- r | P i) F i) = \sum_(i <- r | P i) dot B (F i).
Proof. by rewrite dotC dot_suml; apply: eq_bigr => i _; rewrite dotC. Qed.
Lemma dot_delta A i k : dot A (delta_mx i k) = A i k.
Proof.
rewrite /dot (bigD1 i) //= (bigD1 k) //= mxE !eqxx mulr1 big1 => [|k' /negPf nk]; last first.
  by rewrite mxE nk andbF mulr0.
rewrite addr0 big1 ?addr0 // => i' /negPf ni.
by rewrite big1 // => k' _; rewrite mxE ni mulr0.
Qed.
End Bilinear.

Lemma dot_tr (R : comRingType) m n (A B : 'M[R]_(m, n)) : dot A^T B^T = dot A B.
Proof. by rewrite !dotE trmxK mxtrace_mulC -mxtrace_tr trmx_mul trmxK. Qed.

(* Moving a matrix to the other side. *)
Lemma dot_mull (R : comRingType) m n p (W : 'M[R]_(m, n)) (A : 'M_(n, p)) (B : 'M_(m, p)) :
  dot (W *m A) B = dot A (W^T *m B).
Proof. by rewrite !dotE trmx_mul mulmxA. Qed.
Lemma dot_mulr (R : comRingType) m n p (A : 'M[R]_(m, n)) (W : 'M_(n, p)) (B : 'M_(m, p)) :
  dot (A *m W) B = dot A (B *m W^T).
Proof. by rewrite -dot_tr trmx_mul dot_mull trmxK -dot_tr !trmxK trmx_mul !trmxK. Qed.

(* The inner product of two outer products. *)
Lemma dot_outer (R : comRingType) p q (g h : 'cV[R]_p) (a b : 'cV[R]_q) :
  dot (g *m a^T) (h *m b^T) = dot a b * dot g h.
Proof.
have -> : dot a b = (b^T *m a) 0 0.
  by rewrite dotC dotE /mxtrace big_ord1.
rewrite dot_mulr trmxK -mulmxA [b^T *m a]mx11_scalar mul_mx_scalar dotZr.
by rewrite !mxE.
Qed.

Section Norms.
Variables (R : rcfType) (m n : nat).
Implicit Types (A B : 'M[R]_(m, n)).

Lemma dot_ge0 A : 0 <= dot A A.
Proof. by apply: sumr_ge0 => i _; apply: sumr_ge0 => k _; rewrite -expr2 sqr_ge0. Qed.
Lemma dot_eq0 A : (dot A A == 0) = (A == 0).
Proof.
apply/eqP/eqP => [|->]; last exact: dot0l.
have ge0 i k : 0 <= A i k * A i k by rewrite -expr2 sqr_ge0.
move/eqP; rewrite psumr_eq0 => [/allP h|i _]; last by apply: sumr_ge0.
apply/matrixP => i k; move: (h i (mem_index_enum i)); rewrite psumr_eq0 // => /allP /(_ k (mem_index_enum k)).
by rewrite -expr2 sqrf_eq0 mxE => /eqP.
Qed.
Lemma norm_ge0 A : 0 <= norm A. Proof. exact: sqrtr_ge0. Qed.
Lemma norm_sqr A : norm A ^+ 2 = dot A A. Proof. by rewrite sqr_sqrtr ?dot_ge0. Qed.
Lemma norm_eq0 A : (norm A == 0) = (A == 0).
Proof. by rewrite -sqrf_eq0 norm_sqr dot_eq0. Qed.
Lemma norm0 : norm (0 : 'M[R]_(m, n)) = 0. Proof. by apply/eqP; rewrite norm_eq0. Qed.
Lemma normZ c A : norm (c *: A) = `|c| * norm A.
Proof. by rewrite /norm dotZl dotZr mulrA -expr2 sqrtrM ?sqr_ge0 // sqrtr_sqr. Qed.
Lemma normN A : norm (- A) = norm A.
Proof. by rewrite -scaleN1r normZ normrN1 mul1r. Qed.
Lemma norm_le A c : 0 <= c -> (norm A <= c) = (dot A A <= c ^+ 2).
Proof. by move=> c0; rewrite -norm_sqr ler_pexpn2r // nnegrE norm_ge0. Qed.

Lemma cauchy_schwarz A B : `|dot A B| <= norm A * norm B.
Proof.
have [->|A0] := eqVneq A 0; first by rewrite dot0l normr0 mulr_ge0 ?norm_ge0.
have AA : 0 < dot A A by rewrite lt_def dot_eq0 A0 dot_ge0.
rewrite -(@ler_pexpn2r _ 2) ?nnegrE ?mulr_ge0 ?norm_ge0 // exprMn !norm_sqr real_normK ?num_real //.
have := dot_ge0 (dot A A *: B - dot A B *: A); rewrite dotBl !dotBr !dotZl !dotZr (dotC B A).
have -> : dot A A * (dot A A * dot B B) - dot A A * (dot A B * dot A B)
          - (dot A B * (dot A A * dot A B) - dot A B * (dot A B * dot A A))
        = dot A A * (dot A A * dot B B - dot A B ^+ 2) by ring.
by rewrite pmulr_rge0 // subr_ge0.
Qed.

Lemma norm_triangle A B : norm (A + B) <= norm A + norm B.
Proof.
rewrite norm_le ?addr_ge0 ?norm_ge0 // dotDl !dotDr (dotC B A) sqrrD !norm_sqr.
have := le_trans (ler_norm _) (cauchy_schwarz A B).
set u := dot A B; set v := norm A * norm B => uv.
have -> : dot A A + u + (u + dot B B) = dot A A + u *+ 2 + dot B B by ring.
by rewrite ler_add2r ler_add2l ler_muln2r uv orbT.
Qed.
Lemma norm_sum I r (P : pred I) (F : I -> 'M[R]_(m, n)) :
  norm (\sum_(i <- r | P i) F i) <= \sum_(i <- r | P i) norm (F i).
Proof.
elim/big_ind2: _ => [|A x B y hA hB|i _]; rewrite ?norm0 //.
by apply: le_trans (norm_triangle _ _) _; apply: ler_add.
Qed.

Lemma dot_cos A B : dot A B = cos A B * (norm A * norm B).
Proof.
rewrite /cos; have [n0|n0] := eqVneq (norm A * norm B) 0; last by rewrite divfK.
rewrite n0 mulr0; apply/eqP; rewrite -normr_le0 -n0; exact: cauchy_schwarz.
Qed.
Lemma cos_ge0 A B : 0 <= cos A B -> 0 <= dot A B.
Proof. by move=> c0; rewrite dot_cos; apply: mulr_ge0 => //; apply: mulr_ge0; exact: norm_ge0. Qed.
End Norms.
