(** Proofs of Statements/Moments.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Laws Products Noise Moments.
From LAI Require Import Vectors Variance Products Noise.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Functions of different members of an independent family: the mean of the product is the product of the means. *)
Section Independent.
Variables (R : realFieldType) (W : finType) (P : law R W) (I : finType) (T : I -> eqType) (X : forall i, W -> T i).
Hypothesis ind : independent P X.
Definition depends (S : Type) (A : I -> bool) (F : W -> S) := forall w w', (forall i, A i -> X i w = X i w') -> F w = F w'.
Definition same (A : pred I) w w' := [forall i, A i ==> (X i w == X i w')].
Lemma samex A w : same A w w. Proof. by apply/forallP => i; apply/implyP. Qed.
Lemma sameP (A : pred I) w w' : reflect (forall i, A i -> X i w = X i w') (same A w w').
Proof.
apply: (iffP forallP) => h i; first by move=> Ai; have /implyP /(_ Ai) /eqP := h i.
by apply/implyP => Ai; apply/eqP/h.
Qed.
Definition size A w : R := \sum_w' (same A w w')%:R.
Lemma size_neq0 A w : size A w != 0.
Proof.
rewrite gt_eqF // /size (bigD1 w) //= samex ltr_paddr ?ltr01 //.
by apply: sumr_ge0 => w' _; rewrite ler0n.
Qed.
Lemma decompose A F : depends A F ->
  forall w, F w = \sum_w' F w' / size A w' * \prod_i (if A i then (X i w == X i w')%:R else 1).
Proof.
move=> hF w.
have prodE w' : \prod_i (if A i then (X i w == X i w')%:R else 1) = (same A w w')%:R :> R.
  case: (boolP (same A w w')) => [/sameP h|].
    by apply: big1 => i _; case: ifP => // Ai; rewrite h ?eqxx.
  rewrite negb_forall => /existsP [i]; rewrite negb_imply => /andP [Ai /negPf ne].
  by rewrite (bigD1 i) //= Ai ne mul0r.
rewrite (eq_bigr (fun w' => F w / size A w * (same A w w')%:R)) => [|w' _].
  by rewrite -mulr_sumr -/(size A w) divfK ?size_neq0.
rewrite prodE; case: (boolP (same A w w')) => [/sameP h|_]; last by rewrite !mulr0.
rewrite (hF _ _ h); congr (_ / _ * _); apply: eq_bigr => w'' _; congr (nat_of_bool _)%:R.
by apply/sameP/sameP => h' i Ai; rewrite -?h' ?h // -?h // h'.
Qed.
Lemma mean_depends A F G : depends A F -> depends (predC A) G ->
  mean P (fun w => F w * G w) = mean P F * mean P G.
Proof.
move=> hF hG; pose pick (B : pred I) v i w : R := if B i then (X i w == X i v)%:R else 1.
have meanE B H : depends B H -> mean P H = \sum_v H v / size B v * \prod_i mean P (pick B v i).
  move=> hH; rewrite (eq_mean P (decompose hH)) mean_sum; apply: eq_bigr => v _.
  by rewrite meanZ; congr (_ * _); exact: (ind (fun i x => if B i then (x == X i v)%:R else 1)).
rewrite (meanE _ _ hF) (meanE _ _ hG) mulr_suml.
rewrite (eq_mean P (Y := fun w => \sum_v \sum_v' (F v / size A v * (G v' / size (predC A) v')) *
    \prod_i (pick A v i w * pick (predC A) v' i w))) => [|w]; last first.
  rewrite {1}(decompose hF) {1}(decompose hG) mulr_suml; apply: eq_bigr => v _; rewrite mulr_sumr.
  by apply: eq_bigr => v' _; rewrite big_split /= mulrACA.
rewrite mean_sum; apply: eq_bigr => v _; rewrite mean_sum mulr_sumr; apply: eq_bigr => v' _.
rewrite meanZ [RHS]mulrACA; congr (_ * _); rewrite -big_split /=.
rewrite (eq_mean P (Y := fun w => \prod_i (if A i then (X i w == X i v)%:R else (X i w == X i v')%:R))) => [|w].
  rewrite (ind (fun i x => if A i then (x == X i v)%:R else (x == X i v')%:R)); apply: eq_bigr => i _.
  rewrite /pick /=; case: (A i) => /=; first by rewrite mean_const mulr1.
  by rewrite mean_const mul1r.
by apply: eq_bigr => i _; rewrite /pick /=; case: (A i); rewrite /= ?mulr1 ?mul1r.
Qed.
End Independent.

(* X and Y are independent of each other. *)
Definition free (R : realFieldType) (W : finType) (P : law R W) S T (X : W -> S) (Y : W -> T) :=
  forall (f : S -> R) (g : T -> R), mean P (fun w => f (X w) * g (Y w)) = mean P (fun w => f (X w)) * mean P (fun w => g (Y w)).

Section Free.
Variables (R : realFieldType) (W : finType) (P : law R W).
Lemma depends_free (I : finType) (T : I -> eqType) (X : forall i, W -> T i) (A : pred I) S U (Y : W -> S) (Z : W -> U) :
  independent P X -> depends X A Y -> depends X (predC A) Z -> free P Y Z.
Proof. by move=> ind hY hZ f g; apply: (mean_depends ind (A := A)) => w w' h; [rewrite (hY w w')|rewrite (hZ w w')]. Qed.

Lemma averageE m n (X : W -> 'M[R]_(m, n)) i k : average P X i k = mean P (fun w => X w i k).
Proof. by rewrite /average summxE; apply: eq_bigr => w _; rewrite mxE. Qed.
Lemma free_dot S T (X : W -> S) (Y : W -> T) : free P X Y -> forall m n (f : S -> 'M[R]_(m, n)) (g : T -> 'M[R]_(m, n)),
  mean P (fun w => dot (f (X w)) (g (Y w))) = dot (average P (fun w => f (X w))) (average P (fun w => g (Y w))).
Proof.
move=> h m n f g; rewrite mean_sum; apply: eq_bigr => i _; rewrite mean_sum; apply: eq_bigr => k _.
by rewrite !averageE (h (fun x => f x i k) (fun y => g y i k)).
Qed.
Lemma average_mull m n p (A : 'M[R]_(m, n)) (X : W -> 'M[R]_(n, p)) : average P (fun w => A *m X w) = A *m average P X.
Proof. by rewrite /average mulmx_sumr; apply: eq_bigr => w _; rewrite -scalemxAr. Qed.
End Free.

Section Columns.
Variables (R : comRingType).
(* A gate's similarity, unit by unit. *)
Lemma dot_columns m n (M : 'M[R]_(m, n)) (p r : 'rV[R]_n) (g h : 'cV[R]_m) :
  dot (diag_mx p *m M^T *m g) (diag_mx r *m M^T *m h) = \sum_i p 0 i * r 0 i * (dot (col i M) g * dot (col i M) h).
Proof.
have entry (q : 'rV[R]_n) (x : 'cV[R]_m) i : (diag_mx q *m M^T *m x) i 0 = q 0 i * dot (col i M) x.
  rewrite -mulmxA mul_diag_mx mxE /dot [(M^T *m x) i 0]mxE; congr (_ * _); apply: eq_bigr => k _.
  by rewrite big_ord1 !mxE.
by rewrite /dot; apply: eq_bigr => i _; rewrite big_ord1 !entry mulrACA.
Qed.
Lemma dot_square m (c g h : 'cV[R]_m) : dot c g * dot c h = dot (g *m h^T) (c *m c^T).
Proof. by rewrite dot_outer mulrC (dotC h) (dotC g). Qed.
Lemma dot_mxscalar m (g h : 'cV[R]_m) x : dot (g *m h^T) x%:M = x * dot g h.
Proof. by rewrite dot_mulr trmxK mul_scalar_mx dotZr. Qed.
End Columns.

Theorem gate_corrected : Statements.Moments.gate_corrected.
Proof.
move=> R W P d n L M a aj g gj p pj q last lastj V j chain [given [norms directions ind]] corrected.
have last_only z k l : (l + k = L)%N -> depends (T := fun t : 'I_L => [eqType of 'M[R]_(d t.+1, d t)]) (fun t w => M w t)
    (fun t : 'I_L => l <= t)%N (fun w => (g w z l, gj w l)).
  elim: k l => [|k IH] l lL w w' h.
    by move: lL; rewrite addn0 => e; subst l; have [gw hw] := given w; have [gw' hw'] := given w'; rewrite gw hw gw' hw'.
  have lt : (l < L)%N by rewrite -lL -addSnnS leq_addr.
  have [cw cjw] := chain w; have [cw' cjw'] := chain w'.
  have /= -> := cw z l lt; have /= -> := cjw l lt; have /= -> := cw' z l lt; have /= -> := cjw' l lt.
  have := IH l.+1 _ w w' (fun t lt => h t (ltnW lt)); rewrite addSnnS => /(_ lL) [-> ->].
  by have /= -> := h (Ordinal lt) (leqnn l).
have similar z k l : (l + k = L)%N ->
    mean P (fun w => dot (g w z l) (gj w l)) = dot (last z) lastj * \prod_(l <= t < L) gate_factor q (p z) pj t.
  elim: k l => [|k IH] l lL.
    move: lL; rewrite addn0 => e; subst l; rewrite big_geq // mulr1 -[RHS](mean_const P); apply: eq_mean => w.
    by have [-> ->] := given w.
  have lt : (l < L)%N by rewrite -lL -addSnnS leq_addr.
  have lL' : (l.+1 + k = L)%N by rewrite addSnnS.
  rewrite (eq_mean P (Y := fun w => \sum_i (p z l 0 i * pj l 0 i) *
      dot (g w z l.+1 *m (gj w l.+1)^T) (col i (M w l) *m (col i (M w l))^T))) => [|w]; last first.
    have [cw cjw] := chain w; have /= -> := cw z l lt; have /= -> := cjw l lt.
    by rewrite dot_columns; apply: eq_bigr => i _; rewrite dot_square.
  have fr : free P (fun w => (g w z l.+1, gj w l.+1)) (fun w => M w l).
    apply: (depends_free ind (last_only z k l.+1 lL')) => w w' h.
    by apply: (h (Ordinal lt)); rewrite /= ltnn.
  rewrite mean_sum (eq_bigr (fun i => (q l i * p z l 0 i * pj l 0 i) / (d l.+1)%:R *
      mean P (fun w => dot (g w z l.+1) (gj w l.+1)))) => [|i _]; last first.
    rewrite meanZ (free_dot fr (fun x => x.1 *m x.2^T) (fun m => col i m *m (col i m)^T)) directions //=.
    rewrite -(mean_dotl P) (eq_mean P (fun w => dot_mxscalar _ _ _)) meanZ.
    by move: (mean _ _) (_%:R^-1) => x y; ring.
  rewrite -mulr_suml -mulr_suml (IH l.+1) // [in RHS]big_ltn // /gate_factor.
  by move: (\prod_(_ <= _ < _) _) => x; rewrite mulrCA.
have one z : mean P (fun w => \sum_(1 <= l < L.+1) alpha (V w z) (j w) l * beta (V w z) (j w) l) = corrected z.
  rewrite mean_sum /corrected mulr_sumr; apply: eq_big_nat => l /andP [_ lL].
  by rewrite /alpha /beta /= meanZ (similar z (L - l)%N) ?subnKC // mulrCA.
by split=> //; rewrite /ghost mean_sum; apply: eq_bigr => z _; exact: one.
Qed.
